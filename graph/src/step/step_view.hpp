#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "backward_pass.hpp"
#include "optimizer_reader.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/result.hpp"
#include "values.hpp"

namespace perfmodel {

/// What a rewrite asks of a graph.
struct StepNeeds {
  bool nested = true;  ///< see check_nesting()
  bool no_offload = false, no_collectives = false, no_checkpoints = false;
  bool one_pass = false;  ///< no accumulated gradients
  bool backward = false;  ///< one training step with one backward pass
};

/// Fails in the name of a rewrite where a graph is not as it needs it.
Result<void> check_graph(const ExecutionGraph& graph, std::string_view rewrite,
                         const StepNeeds& needs);

/// A training step as rewrites read it. What several of them ask is found once, when it is asked.
class StepView {
 public:
  explicit StepView(const ExecutionGraph& graph);
  StepView(const StepView&) = delete;
  StepView& operator=(const StepView&) = delete;

  /// With ids that are versions.
  const ExecutionGraph& graph() const { return renamed_ ? *renamed_ : source_; }

  const Values& tensors() const;
  const Values& storages() const;
  const BackwardPass& backward() const;
  const StorageLifetimes& lifetimes() const;
  /// By node: AccumulateGrad of a parameter.
  const std::vector<bool>& parameter_gradients() const;
  /// By label "Optimizer.step#...". Fails at an op that belongs to no optimizer.
  Result<std::map<std::int32_t, ReadStep>> optimizers() const;

  Result<void> check(std::string_view rewrite, const StepNeeds& needs) const {
    return check_graph(graph(), rewrite, needs);
  }

 private:
  const ExecutionGraph& source_;
  std::optional<ExecutionGraph> renamed_;
  mutable std::optional<Values> tensors_, storages_;
  mutable std::optional<BackwardPass> backward_;
  mutable std::optional<StorageLifetimes> lifetimes_;
  mutable std::optional<std::vector<bool>> parameter_gradients_;
};

}  // namespace perfmodel
