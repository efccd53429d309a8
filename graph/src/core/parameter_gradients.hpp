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

/// Whether an AccumulateGrad adds to a gradient that is there. Ids of tensors are reused: two that
/// keep tensors of one id keep the same gradient only if the later one adds to it.
bool adds_to_gradient(const ExecutionGraph& graph, const Node& accumulate);

}  // namespace perfmodel
