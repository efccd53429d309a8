#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// nn.Embedding: weight [rows, dim], indices of any shape -> [indices..., dim]; dense gradient.
/// `padding_row` gets none; -1: every row does.
TensorRef embedding_lookup(AutogradTape& tape, TensorRef weight, TensorRef indices,
                           std::int64_t padding_row = -1);

/// Its backward op: gradient [indices..., dim] -> [rows, dim].
TensorRef embedding_dense_backward(GraphBuilder& graph, TensorRef gradient, TensorRef indices,
                                   const Shape& weight_shape, std::int64_t padding_row);

/// Rows of `x` (or elements, if it has one axis) that `indices` [N] pick.
TensorRef index_select(GraphBuilder& graph, TensorRef x, TensorRef indices,
                       std::int64_t sequence = -1);

/// Inside of a backward op on a GPU: the allocations of the sort by row and of the segments of
/// equal rows; the kernels belong to that op.
TensorRef sorted_lookup_gradient(GraphBuilder& graph, TensorRef indices, TensorRef gradient,
                                 const Shape& weight_shape);

}  // namespace perfmodel
