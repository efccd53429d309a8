#pragma once

#include <vector>

#include "autograd_tape.hpp"
#include "graph_views.hpp"

namespace perfmodel {

// Views that are recorded for the backward pass.

TensorRef view(AutogradTape& tape, TensorRef x, const Shape& asked);
TensorRef unsafe_view(AutogradTape& tape, TensorRef x, const Shape& asked);
TensorRef reshape(AutogradTape& tape, TensorRef x, const Shape& asked);
TensorRef t(AutogradTape& tape, TensorRef x);
/// Makes one axis of all from `from_dim` on.
TensorRef flatten(AutogradTape& tape, TensorRef x, int from_dim);
TensorRef transpose(AutogradTape& tape, TensorRef x, int dim0, int dim1);
TensorRef permute(AutogradTape& tape, TensorRef x, const Shape& axes);
TensorRef unsqueeze(AutogradTape& tape, TensorRef x, int dim);
TensorRef squeeze(AutogradTape& tape, TensorRef x, int dim);
TensorRef expand(AutogradTape& tape, TensorRef x, const Shape& shape);
TensorRef slice(AutogradTape& tape, TensorRef x, int dim, std::int64_t start, std::int64_t end);
TensorRef select(AutogradTape& tape, TensorRef x, int dim, std::int64_t index);
/// A copy in row-major order; `x` itself, without an op, if it is in that order.
TensorRef contiguous(AutogradTape& tape, TensorRef x);

/// Without its last axis, which has size 1.
TensorRef squeeze_last(AutogradTape& tape, TensorRef x);
std::vector<TensorRef> split_with_sizes(AutogradTape& tape, TensorRef x, const Shape& sizes,
                                        int dim);

}  // namespace perfmodel
