#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// When a step takes memory or gives it back, in the order of the host's calls.
struct MemoryEvent {
  std::int32_t node = 0;     ///< index: allocations come before its work, frees after it
  std::int32_t storage = 0;  ///< into StorageLifetimes::storages
  bool is_free = false;
};

/// The storages of a step and when they come and go: the same for all sizes of a graph.
struct MemoryPlan {
  StorageLifetimes lifetimes;
  /// Events of storages that the step makes. If the previous step left a gradient, the first event
  /// of its storage frees it.
  std::vector<MemoryEvent> events;
  /// By storage, whether a replayed CUDA graph makes it, in the graphs' own pool. PyTorch counts
  /// that pool as reserved, not as allocated.
  std::vector<bool> in_graph_pool;
  bool has_convolutions = false;  ///< their libraries need a workspace
};
MemoryPlan memory_plan(const ExecutionGraph& graph);

/// Current bytes of each storage of `graph`, which may differ from the plan's graph in sizes only.
std::vector<std::int64_t> storage_bytes(const MemoryPlan& plan, const ExecutionGraph& graph);

/// Needs of a step in steady state on any GPU: no workspaces, no context. Bytes are rounded to the
/// allocator's blocks, except `activation_bytes`.
struct GraphMemory {
  double activation_bytes = 0;  ///< storages of that purpose at the end of the forward pass
  double peak_allocated_bytes = 0;
  std::int32_t peak_node = -1;  ///< index
  MemoryByPurpose at_peak{}, each_peak{};
};
GraphMemory graph_memory(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes);

/// Bytes by purpose after each event of the step.
std::vector<MemoryByPurpose> memory_curve(const MemoryPlan& plan,
                                          const std::vector<std::int64_t>& bytes);

/// Storages that are alive while `node` runs.
std::vector<std::int32_t> alive_at(const MemoryPlan& plan, std::int32_t node);

}  // namespace perfmodel
