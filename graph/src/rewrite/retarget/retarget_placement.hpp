#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// A tensor that no op of the step makes and that is neither parameter nor state.
struct StepInput {
  std::uint32_t tensor = 0;  ///< its first entry in ExecutionGraph::tensors
  std::int32_t node = -1;    ///< the op that uses it first
};

/// A CPU graph whose tensors lie where a GPU run has them and whose backward functions stand on
/// autograd's thread; the ops themselves are still those of a CPU.
struct Placement {
  ExecutionGraph graph;
  std::vector<StepInput> inputs;  ///< in order of first use
  std::vector<bool> on_host;      ///< per node: works on host tensors alone
  std::vector<bool> is_artefact;  ///< per node: makes the handle of a label
};

Placement place_on_gpu(const ExecutionGraph& graph);

}  // namespace perfmodel
