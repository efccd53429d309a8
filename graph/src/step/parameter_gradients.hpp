#pragma once

#include <cstdint>
#include <optional>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The tensor that an AccumulateGrad keeps, into ExecutionGraph::tensors. None: it takes no tensor.
std::optional<std::uint32_t> kept_gradient(const ExecutionGraph& graph, const Node& accumulate);

/// Whether an AccumulateGrad adds to a gradient that is there: of two that keep the same tensor the
/// later one may do so, or both may have been given it.
bool adds_to_gradient(const ExecutionGraph& graph, const Node& accumulate);

}  // namespace perfmodel
