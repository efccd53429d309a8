#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Tensors that a model makes from nothing, where it computes.

TensorRef ones(GraphBuilder& graph, DType dtype, Shape shape);
TensorRef full(GraphBuilder& graph, Shape shape, double value);
/// torch.arange(0, count) of whole numbers.
TensorRef arange(GraphBuilder& graph, std::int64_t count);
/// torch.tensor(number): made in host memory, then copied.
TensorRef tensor_of_number(AutogradTape& tape, DType dtype);

}  // namespace perfmodel
