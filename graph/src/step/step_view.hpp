#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "backward_pass.hpp"
#include "base/stop_point.hpp"
#include "forward_flow.hpp"
#include "optimizer_reader.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/result.hpp"
#include "values.hpp"

namespace perfmodel {

/// The first step of a graph; without nodes if there is none.
GraphIteration first_step(const ExecutionGraph& graph);

/// Conditions of a rewrite on its graph.
struct StepNeeds {
  bool nested = true;  ///< see check_nesting()
  bool no_offload = false, no_collectives = false, no_checkpoints = false;
  bool eager = false;     ///< no compiled regions, whose ops nothing can tell any more
  bool one_pass = false;  ///< no accumulated gradients
  bool backward = false;  ///< one training step with one backward pass
};

/// A training step as rewrites read it. Facts that several of them need are found once, on demand.
class StepView {
 public:
  explicit StepView(const ExecutionGraph& graph)
      : StepView(graph, static_cast<std::int32_t>(graph.nodes.size())) {}
  /// Only for questions about the nodes before `end`: ids of the others stay as they came.
  StepView(const ExecutionGraph& graph, std::int32_t end) : recorded_(graph), end_(end) {}
  StepView(const StepView&) = delete;
  StepView& operator=(const StepView&) = delete;

  /// With ids that are versions.
  const ExecutionGraph& graph() const;
  /// The same nodes with the ids that they came with, for questions that no id answers.
  const ExecutionGraph& recorded() const { return recorded_; }

  const Values& tensors() const;
  const Values& storages() const;
  const BackwardPass& backward() const;
  const ForwardFlow& forward() const;
  const StorageLifetimes& lifetimes() const;
  /// By node: whether it is the AccumulateGrad of a parameter. Detached inputs of a checkpoint
  /// (torch.utils.checkpoint, reentrant) have such nodes, too, which do not count: their gradient
  /// goes on to the backward function before the checkpoint.
  const std::vector<bool>& parameter_gradients() const;
  /// Backward passes whose gradients the first step adds up.
  std::int64_t accumulated_passes() const;
  /// Fails at an op that belongs to no optimizer.
  const Result<OptimizerSteps>& optimizers() const;
  const PyTorch& dialect() const;

  /// Fails, in the name of a rewrite, if the step does not meet its needs.
  Result<void> check(std::string_view rewrite, const StepNeeds& needs) const;

 private:
  template <class Part, class Find>
  static const Part& found_once(std::optional<Part>& part, Find&& find) {
    if (part) return *part;
    stop_point();
    return part.emplace(find());
  }

  const ExecutionGraph& recorded_;
  std::int32_t end_;
  mutable bool has_versions_ = false;  // renamed_ is known
  mutable std::optional<ExecutionGraph> renamed_;
  mutable std::optional<Values> tensors_, storages_;
  mutable std::optional<BackwardPass> backward_;
  mutable std::optional<ForwardFlow> forward_;
  mutable std::optional<StorageLifetimes> lifetimes_;
  mutable std::optional<std::vector<bool>> parameter_gradients_;
  mutable std::optional<Result<OptimizerSteps>> optimizers_;
  mutable std::optional<PyTorch> dialect_;
};

}  // namespace perfmodel
