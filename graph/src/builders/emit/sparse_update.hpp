#pragma once

#include "sparse.hpp"

namespace perfmodel {

// Ops of optimizers on sparse gradients.

/// dense += alpha * sparse, whose indices may repeat.
void add_sparse_(GraphBuilder& graph, TensorRef dense, TensorRef sparse, Value alpha);
/// Different rows among `lookups` uniform draws from `rows` rows: their expected number.
std::int64_t expected_distinct_rows(std::int64_t rows, std::int64_t lookups);
/// `sparse.coalesce()`: one entry for each of the `distinct` rows.
TensorRef coalesce(GraphBuilder& graph, TensorRef sparse, std::int64_t distinct);
/// The ops inside of `aten::_coalesce` on a GPU, which sorts itself: give `made` the entries that
/// are its parts.
void coalesce_on_gpu(GraphBuilder& graph, TensorRef sparse, TensorRef made);
/// `dense.sparse_mask(mask)`: its rows at the indices of a coalesced mask.
TensorRef sparse_mask(GraphBuilder& graph, TensorRef dense, TensorRef mask);

}  // namespace perfmodel
