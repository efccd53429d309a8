#pragma once

#include "emitter.hpp"

namespace perfmodel {

inline TensorRef relu(AutogradTape& tape, TensorRef x) { return emit(tape, "aten::relu", {x}); }
inline TensorRef relu_in_place(AutogradTape& tape, TensorRef x) {
  return emit(tape, "aten::relu_", {x});
}
inline TensorRef leaky_relu(AutogradTape& tape, TensorRef x, double slope) {
  return emit(tape, "aten::leaky_relu", {x, slope});
}
inline TensorRef leaky_relu_in_place(AutogradTape& tape, TensorRef x, double slope) {
  return emit(tape, "aten::leaky_relu_", {x, slope});
}
inline TensorRef sigmoid(AutogradTape& tape, TensorRef x) {
  return emit(tape, "aten::sigmoid", {x});
}
inline TensorRef tanh(AutogradTape& tape, TensorRef x) { return emit(tape, "aten::tanh", {x}); }
inline TensorRef gelu(AutogradTape& tape, TensorRef x) {
  return emit(tape, "aten::gelu", {x, "none"});
}
/// The tanh form of GELU in one kernel: `nn.GELU(approximate="tanh")`.
inline TensorRef gelu_tanh(AutogradTape& tape, TensorRef x) {
  return emit(tape, "aten::gelu", {x, "tanh"});
}
inline TensorRef silu(AutogradTape& tape, TensorRef x) { return emit(tape, "aten::silu", {x}); }
/// The tanh form of GELU in pointwise ops: "gelu_new" of HuggingFace's GPT-2.
TensorRef gelu_new(AutogradTape& tape, TensorRef x);

}  // namespace perfmodel
