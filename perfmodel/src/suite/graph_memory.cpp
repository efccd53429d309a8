#include "graph_memory.hpp"

#include <algorithm>

#include "perfmodel/graph/detail/static_memory.hpp"

namespace perfmodel::suite {

std::vector<MemoryPurpose> graph_memory(const ExecutionGraph& graph) {
  const StaticMemory held = static_memory(graph);
  return {{"weights", held.parameters + held.tables + held.other},
          {"gradients", held.gradients},
          {"optimizer", held.optimizer_state}};
}

void add_graph(std::vector<MemoryPurpose>& memory, const std::vector<MemoryPurpose>& graph) {
  for (const MemoryPurpose& purpose : graph) {
    const auto known = std::ranges::find(memory, purpose.name, &MemoryPurpose::name);
    if (known == memory.end()) {
      memory.push_back(purpose);
    } else if (purpose.name == "gradients" || purpose.name == "optimizer") {
      known->bytes += purpose.bytes;
    } else {
      known->bytes = std::max(known->bytes, purpose.bytes);
    }
  }
}

}  // namespace perfmodel::suite
