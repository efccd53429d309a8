#include "graph_memory.hpp"

#include <algorithm>

#include "perfmodel/memory.hpp"

namespace perfmodel::suite {

MemoryOfGraph graph_memory(const ExecutionGraph& graph, const Gpu& gpu) {
  const MemoryReport report = memory_report(graph, &gpu, {.largest = 0});
  MemoryOfGraph made{.purposes = {}, .needed_bytes = report.memory.needed_bytes()};
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    made.purposes.push_back({to_string(static_cast<perfmodel::MemoryPurpose>(i)),
                             std::max(report.each_peak[i], report.memory.by_purpose[i])});
  }
  return made;
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
