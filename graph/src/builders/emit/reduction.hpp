#pragma once

#include "emitter.hpp"
#include "graph_reduction.hpp"

namespace perfmodel {

// Sums and means that are recorded for the backward pass; axes as in graph_reduction.hpp.

inline TensorRef sum(AutogradTape& tape, TensorRef x) {
  return emit(tape, "aten::sum", {x, kNone});
}
inline TensorRef mean(AutogradTape& tape, TensorRef x) {
  return emit(tape, "aten::mean", {x, kNone});
}
inline TensorRef mean(AutogradTape& tape, TensorRef x, const Shape& axes, bool keep_axes) {
  return emit(tape, "aten::mean.dim", {x, axes, keep_axes, kNone});
}

}  // namespace perfmodel
