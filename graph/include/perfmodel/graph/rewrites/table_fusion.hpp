#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct TableFusionRewrite {
  /// In the backward pass of the lookup; kAsBefore: SGD with the rate of the step.
  enum class Optimizer { kAsBefore, kRowwiseAdagrad } optimizer = Optimizer::kAsBefore;
};

/// Many `nn.EmbeddingBag` become one FBGEMM lookup (SplitTableBatchedEmbeddingBags), whose backward
/// pass updates the tables. Indices and offsets that the step copies from the host become one copy
/// each, others are joined by `aten::cat`; the cat of the vectors gets one input in place of many;
/// sparse gradients and their updates are gone, and the optimizer walks what is left as this
/// PyTorch does by default. Autograd's numbers close up.
///
/// Fails unless each step has at least two bags of one batch on one GPU that sum, have sparse
/// gradients and no weights per sample, whose vectors go side by side into one aten::cat and
/// nowhere else, and, where there is an optimizer step, that updates every table by plain SGD.
Result<ExecutionGraph> rewrite_table_fusion(const ExecutionGraph& graph,
                                            const TableFusionRewrite& rewrite = {});

}  // namespace perfmodel
