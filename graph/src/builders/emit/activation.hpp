#pragma once

#include "emitter.hpp"

namespace perfmodel {

inline TensorRef relu(AutogradTape& tape, TensorRef x) { return emit(tape, "aten::relu", {x}); }
inline TensorRef sigmoid(AutogradTape& tape, TensorRef x) {
  return emit(tape, "aten::sigmoid", {x});
}
inline TensorRef tanh(AutogradTape& tape, TensorRef x) { return emit(tape, "aten::tanh", {x}); }
inline TensorRef gelu(AutogradTape& tape, TensorRef x) {
  return emit(tape, "aten::gelu", {x, "none"});
}

}  // namespace perfmodel
