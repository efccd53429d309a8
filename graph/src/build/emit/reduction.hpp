#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Sums and means over some axes; axes may count from the end (-1: the last), none are all. Those on
// a GraphBuilder have no gradient.

TensorRef sum(GraphBuilder& graph, TensorRef x, const Shape& axes, bool keep_axes,
              std::int64_t sequence = -1);
TensorRef mean(GraphBuilder& graph, TensorRef x, const Shape& axes, bool keep_axes,
               std::int64_t sequence = -1);
/// `x.sum()` and `x.mean()`, where an op without axes calls the one with.
TensorRef sum(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef mean(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
/// `x / count`, `x /= count`.
TensorRef divide(GraphBuilder& graph, TensorRef x, std::int64_t count, std::int64_t sequence = -1);
void divide_in_place(GraphBuilder& graph, TensorRef x, std::int64_t count);

TensorRef sum(AutogradTape& tape, TensorRef x);
TensorRef sum(AutogradTape& tape, TensorRef x, const Shape& axes, bool keep_axes);
TensorRef mean(AutogradTape& tape, TensorRef x);
TensorRef mean(AutogradTape& tape, TensorRef x, const Shape& axes, bool keep_axes);
TensorRef divide(AutogradTape& tape, TensorRef x, std::int64_t count);

}  // namespace perfmodel
