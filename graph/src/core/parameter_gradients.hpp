#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Per node: whether it is the AccumulateGrad of a parameter. Those of the detached inputs of a
/// checkpoint (torch.utils.checkpoint, reentrant) are not: what they keep is handed on to the
/// backward function in front of the checkpoint.
std::vector<bool> parameter_gradients(const ExecutionGraph& graph);

/// The tensor that an AccumulateGrad keeps, into ExecutionGraph::tensors. None: it takes no tensor.
std::optional<std::uint32_t> kept_gradient(const ExecutionGraph& graph, const Node& accumulate);

}  // namespace perfmodel
