#pragma once

#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/suite/detail/memory_purpose.hpp"

namespace perfmodel::suite {

/// GPU memory of a step of `graph`, each purpose at its own peak, in the order of `perfpredict
/// memory`.
struct MemoryOfGraph {
  std::vector<MemoryPurpose> purposes;
  double needed_bytes = 0;  ///< at the common peak
};
MemoryOfGraph graph_memory(const ExecutionGraph& graph, const Gpu& gpu);

/// Adds a graph that takes turns with others in one program: all read the same weights, so the
/// largest counts; gradients and optimizer state belong to the part that learns in each, so they
/// add up.
void add_graph(std::vector<MemoryPurpose>& memory, const std::vector<MemoryPurpose>& graph);

}  // namespace perfmodel::suite
