#pragma once

#include "graph_builder.hpp"

namespace perfmodel {

/// Without a look at the indices, as a backward pass makes it.
TensorRef sparse_coo_tensor(GraphBuilder& graph, TensorRef indices, TensorRef values, Shape shape);

/// How Python makes a sparse tensor.
enum class SparseMaker {
  kConstructor,  ///< `gradient.new(indices, values, size)`
  kFunction,     ///< `torch.sparse_coo_tensor(indices, values, size)`
};
/// PyTorch 1.13 compares the least and the largest index with the shape, for which the host waits
/// twice if they are on a GPU. Since 2.0 it does so only under
/// `torch.sparse.check_sparse_tensor_invariants`.
TensorRef checked_sparse_coo_tensor(GraphBuilder& graph, SparseMaker maker, TensorRef indices,
                                    TensorRef values, Shape shape);

/// A second sparse tensor with the indices and values of `sparse`, as AccumulateGrad makes it.
TensorRef share_sparse(GraphBuilder& graph, TensorRef sparse);
/// Adds `other` to a sparse tensor without entries.
void add_to_empty_sparse(GraphBuilder& graph, TensorRef empty_sparse, TensorRef other);
TensorRef indices_of(GraphBuilder& graph, TensorRef sparse);
TensorRef values_of(GraphBuilder& graph, TensorRef sparse);

// First questions and calls of ops on sparse tensors.
std::int64_t entries_of(const GraphBuilder& graph, TensorRef sparse);  ///< no op
void ask_entries(GraphBuilder& graph, TensorRef sparse);
void ask_coalesced(GraphBuilder& graph, TensorRef sparse, bool answer);
void set_coalesced(GraphBuilder& graph, TensorRef sparse, bool coalesced);
/// `op`: "aten::sparse_dim" or "aten::dense_dim".
void ask_dim(GraphBuilder& graph, const char* op, TensorRef sparse, std::int64_t answer);
/// A sparse tensor begins without entries, then gets one axis of indices and rows of this width.
void make_room(GraphBuilder& graph, DType dtype, std::int64_t width);
/// Copies it to the host, which waits for it.
void read_index(GraphBuilder& graph, TensorRef index);
/// The op that makes `made` of its indices and values.
void make_unsafe(GraphBuilder& graph, TensorRef made);

}  // namespace perfmodel
