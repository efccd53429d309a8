#pragma once

#include "graph_builder.hpp"

namespace perfmodel {

TensorRef sparse_coo_tensor(GraphBuilder& graph, TensorRef indices, TensorRef values, Shape shape);
/// A second sparse tensor with the indices and values of `sparse`, as AccumulateGrad makes it.
TensorRef share_sparse(GraphBuilder& graph, TensorRef sparse);
/// Adds `other` to a sparse tensor without entries.
void add_to_empty_sparse(GraphBuilder& graph, TensorRef empty_sparse, TensorRef other);
TensorRef indices_of(GraphBuilder& graph, TensorRef sparse);
TensorRef values_of(GraphBuilder& graph, TensorRef sparse);

}  // namespace perfmodel
