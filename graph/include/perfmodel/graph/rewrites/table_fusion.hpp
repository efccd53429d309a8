#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct TableFusionRewrite {
  /// What trains the tables, in the backward pass of the lookup: SGD with the rate of the step that
  /// did it before (0.01 without one), or row-wise Adagrad with FBGEMM's default numbers.
  enum class Optimizer { kSgd, kRowwiseAdagrad } optimizer = Optimizer::kSgd;
};

/// Many nn.EmbeddingBag become one FBGEMM lookup (SplitTableBatchedEmbeddingBags), whose backward
/// pass updates the tables.
///
/// The lookup stands where the last bag stood. Indices and offsets that come from outside of the
/// step (copied from the host, or on the GPU before) are taken as laid out for the lookup: one
/// tensor and one copy each. Those that the step computes are joined by aten::cat, offsets shifted
/// by those of the tables in front. The cat of the vectors gets one input in place of many, its
/// backward function cuts one gradient. Sparse gradients are gone: their accumulation, zeroing and
/// updates; the optimizer walks what is left as this PyTorch does by default. Autograd's numbers
/// close up.
///
/// Fails unless each step has at least two bags of one batch on one GPU that sum, have sparse
/// gradients, float32 weights of their own, one offset per bag, neither padding nor weights per
/// sample; whose vectors go side by side into one aten::cat along the last dimension and nowhere
/// else; and, where there is an optimizer step, that updates every table by plain SGD of one rate.
/// Nothing else may read tables or their gradients.
Result<ExecutionGraph> rewrite_table_fusion(const ExecutionGraph& graph,
                                            const TableFusionRewrite& rewrite = {});

}  // namespace perfmodel
