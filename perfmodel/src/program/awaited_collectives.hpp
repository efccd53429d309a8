#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// A collective for which work of the graph waits although no record says so.
struct AwaitedCollective {
  std::int32_t reader = -1;  ///< the first node behind it that touches its memory
  std::int32_t record = -1;  ///< its record_param_comms node
};

/// DDP's reducer waits for its all-reduces without writing "wait" records. Whoever touches the
/// memory of a collective must have waited for it, so the first node that does (the reducer's views
/// of the bucket, behind the last gradient) stands for the wait. Collectives with a "wait" record
/// are left out. A reader in front of the collective is that of the next pass. Sorted by reader.
std::vector<AwaitedCollective> awaited_collectives(const ExecutionGraph& graph);

}  // namespace perfmodel
