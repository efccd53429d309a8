#pragma once

#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/suite/memory_purpose.hpp"

namespace perfmodel::suite {

/// What a step of `graph` holds on the GPU, by purpose, in the order of `perfpredict memory`.
std::vector<MemoryPurpose> graph_memory(const ExecutionGraph& graph);

/// Of several graphs that take turns in one program: each reads the same weights, so the largest
/// counts; gradients and state of the optimizer belong to what learns in each, so they add up.
void add_graph(std::vector<MemoryPurpose>& memory, const std::vector<MemoryPurpose>& graph);

}  // namespace perfmodel::suite
