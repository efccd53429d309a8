#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Without gradient.
TensorRef relu(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
void relu_in_place(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);

TensorRef relu(AutogradTape& tape, TensorRef x);
TensorRef relu_in_place(AutogradTape& tape, TensorRef x);
TensorRef leaky_relu(AutogradTape& tape, TensorRef x, double slope);
TensorRef leaky_relu_in_place(AutogradTape& tape, TensorRef x, double slope);
TensorRef sigmoid(AutogradTape& tape, TensorRef x);
TensorRef tanh(AutogradTape& tape, TensorRef x);
TensorRef gelu(AutogradTape& tape, TensorRef x);
/// The tanh form of GELU in one kernel: `nn.GELU(approximate="tanh")`.
TensorRef gelu_tanh(AutogradTape& tape, TensorRef x);
TensorRef silu(AutogradTape& tape, TensorRef x);
/// The tanh form of GELU in pointwise ops: "gelu_new" of HuggingFace's GPT-2.
TensorRef gelu_new(AutogradTape& tape, TensorRef x);

}  // namespace perfmodel
