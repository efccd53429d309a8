#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "step/step_view.hpp"

namespace perfmodel {

/// A tensor that no op of the step makes and that is neither parameter nor state.
struct StepInput {
  std::uint32_t tensor = 0;  ///< its first entry in ExecutionGraph::tensors
  std::int32_t node = -1;    ///< the op that uses it first
};

/// Where a GPU run has the tensors of a CPU graph, or of a captured one.
struct Placement {
  std::string_view device = "cpu";  ///< means the GPU: "meta" in captured graphs
  bool is_captured() const { return device == "meta"; }
  std::vector<StepInput> inputs;      ///< in order of first use
  std::vector<bool> tensors_on_host;  ///< per entry of ExecutionGraph::tensors
  std::vector<bool> on_host;          ///< per node: works on host tensors alone
  std::vector<bool> is_artefact;      ///< per node: makes the handle of a label
};

Placement place_on_gpu(const StepView& step);

}  // namespace perfmodel
