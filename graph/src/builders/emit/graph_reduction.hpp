#pragma once

#include "graph_builder.hpp"

namespace perfmodel {

// Sums and means over some axes, without gradient; axes may count from the end (-1: the last), none
// are all.

TensorRef sum(GraphBuilder& graph, TensorRef x, const Shape& axes, bool keep_axes,
              std::int64_t sequence = -1);
TensorRef mean(GraphBuilder& graph, TensorRef x, const Shape& axes, bool keep_axes,
               std::int64_t sequence = -1);
/// `x.sum()` and `x.mean()`: an op without axes calls the one with axes.
TensorRef sum(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef mean(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
/// `x.cumsum(axis, dtype=dtype)` of integers on a CPU, which hands its input through a cast.
TensorRef cumsum_on_cpu(GraphBuilder& graph, TensorRef x, std::int64_t axis, Value dtype,
                        std::int64_t sequence = -1);
/// `x / count`, `x /= count`.
TensorRef divide(GraphBuilder& graph, TensorRef x, std::int64_t count, std::int64_t sequence = -1);
void divide_in_place(GraphBuilder& graph, TensorRef x, std::int64_t count);

/// The calls of a reduction of a tensor of shape `from` before its kernel.
void begin_reduction(GraphBuilder& graph, TensorRef out, const Shape& from, const Shape& axes,
                     bool keep_axes);

/// Elements of a tensor of shape `from` that become one.
std::int64_t reduced_count(const Shape& from, const Shape& axes);
/// The gradient of a sum over `axes` of a tensor of shape `from`, for every element that was added.
TensorRef expand_gradient(GraphBuilder& graph, TensorRef gradient, const Shape& from,
                          const Shape& axes, bool keep_axes);
/// A gradient of something that was broadcast from `shape`, summed to that shape (at::sum_to).
TensorRef sum_to(GraphBuilder& graph, TensorRef gradient, const Shape& shape);

}  // namespace perfmodel
