#pragma once

#include "emitter.hpp"

namespace perfmodel {

/// `x[:, row, column]` of a [B, M, N] tensor with two index tensors of one length.
TensorRef index_matrix(AutogradTape& tape, TensorRef x, TensorRef row, TensorRef column);

/// The views that `x[..., i, j, ...]` with index tensors [N] at neighbouring axes needs for a walk
/// over all picks. An index that does not exist is a `:`.
void spread_over_picks(GraphBuilder& graph, TensorRef x, const std::vector<TensorRef>& indices);

/// Sorts a list on a CPU; returns the original places of its values.
TensorRef sorted_order(GraphBuilder& graph, TensorRef x, int dim);

/// `x.index_add_(0, indices, values, alpha=alpha)`: adds rows of `values` to rows of `x`.
void index_add_in_place(GraphBuilder& graph, TensorRef x, TensorRef indices, TensorRef values,
                        Value alpha, std::int64_t sequence = -1);

/// `made[indices] += values` on a GPU: linear indices are sorted, then rows of equal index are
/// added up. An index that does not exist is a `:`.
void index_put_accumulate(GraphBuilder& graph, TensorRef made,
                          const std::vector<TensorRef>& indices, TensorRef values);

}  // namespace perfmodel
