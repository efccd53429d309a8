#pragma once

#include <optional>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// What becomes of every optimizer step; what is not given stays.
struct OptimizerRewrite {
  /// Another kind starts with PyTorch's default numbers and state of its own.
  std::optional<TrainingOptions::Optimizer> optimizer;
  std::optional<TrainingOptions::Implementation> implementation;
};

/// Writes what stands in each `Optimizer.step#...` anew, as PyTorch writes it on this device:
/// parameters, gradients, state and numbers stay. Steps that are like that already stay as they
/// are.
///
/// Numbers that no op of the old step holds (momentum, eps and the decay of AdamW in loops) become
/// PyTorch's defaults, fused steps do not tell how many steps were made (taken as 4).
///
/// Fails without an optimizer step, at ops in it that belong to no known optimizer, at sparse
/// gradients unless the step stays a loop of plain SGD, and where PyTorch has no such step (fused
/// on a CPU, fused Adagrad).
Result<ExecutionGraph> rewrite_optimizer(const ExecutionGraph& graph,
                                         const OptimizerRewrite& rewrite);

}  // namespace perfmodel
