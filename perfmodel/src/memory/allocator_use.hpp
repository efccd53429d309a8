#pragma once

#include <optional>

#include "caching_allocator.hpp"
#include "graph_memory.hpp"

namespace perfmodel {

/// Memory of PyTorch's allocator under a sequence of steps, in bytes.
struct AllocatorUse {
  std::int64_t peak_allocated = 0, peak_reserved = 0;
};

/// Runs a first step from empty memory and one more, which starts with the memory that the first
/// one left. `held`: memory outside of the graph's storages (workspaces, gathered parameters), each
/// in one piece. Empty: the device of the options is too small.
std::optional<AllocatorUse> allocator_use(const MemoryPlan& plan,
                                          const std::vector<std::int64_t>& bytes,
                                          const std::vector<std::int64_t>& held,
                                          const AllocatorOptions& options);

}  // namespace perfmodel
