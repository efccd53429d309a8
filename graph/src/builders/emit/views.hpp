#pragma once

#include <vector>

#include "emitter.hpp"
#include "graph_views.hpp"

namespace perfmodel {

// Views that are recorded for the backward pass.

inline TensorRef view(AutogradTape& tape, TensorRef x, const Shape& asked) {
  return emit(tape, "aten::view", {x, asked});
}
inline TensorRef unsafe_view(AutogradTape& tape, TensorRef x, const Shape& asked) {
  return emit(tape, "aten::_unsafe_view", {x, asked});
}
TensorRef reshape(AutogradTape& tape, TensorRef x, const Shape& asked);
inline TensorRef t(AutogradTape& tape, TensorRef x) { return emit(tape, "aten::t", {x}); }
/// Makes one axis of all from `from_dim` on.
TensorRef flatten(AutogradTape& tape, TensorRef x, int from_dim);
inline TensorRef transpose(AutogradTape& tape, TensorRef x, int dim0, int dim1) {
  return emit(tape, "aten::transpose.int", {x, dim0, dim1});
}
inline TensorRef unsqueeze(AutogradTape& tape, TensorRef x, int dim) {
  return emit(tape, "aten::unsqueeze", {x, dim});
}
inline TensorRef squeeze(AutogradTape& tape, TensorRef x, int dim) {
  return emit(tape, "aten::squeeze.dim", {x, dim});
}
inline TensorRef expand(AutogradTape& tape, TensorRef x, const Shape& shape) {
  return emit(tape, "aten::expand", {x, shape, false});
}
inline TensorRef slice(AutogradTape& tape, TensorRef x, int dim, std::int64_t start,
                       std::int64_t end) {
  return emit(tape, "aten::slice.Tensor", {x, dim, start, end, 1});
}
/// A copy in row-major order; `x` itself, without an op, if it is in that order.
TensorRef contiguous(AutogradTape& tape, TensorRef x);

}  // namespace perfmodel
