#pragma once

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Whether PyTorch gives batch norms of this type to cuDNN or MIOpen: all except bfloat16, whatever
/// the order in memory (`_batch_norm_impl_index` of PyTorch 1.13 and `_select_batch_norm_backend`
/// of 2.x, aten/src/ATen/native/Normalization.cpp; recorded with 2.11 in both orders).
constexpr bool library_takes_batch_norm(DType image) { return image != DType::kBFloat16; }

/// The graph with PyTorch's own batch norms where cuDNN's have images that it does not take.
ExecutionGraph with_native_batch_norms(const ExecutionGraph& graph);

}  // namespace perfmodel
