#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// A collective for which work of the graph waits although no record says so.
struct AwaitedCollective {
  std::int32_t reader = -1;  ///< the first later node that touches its memory
  std::int32_t record = -1;  ///< its record_param_comms node
};

/// DDP's reducer waits for its all-reduces without writing "wait" records. A node that touches the
/// memory of a collective must have waited for it, so the wait is put at the first such node (the
/// reducer's views of the bucket, after the last gradient). Collectives with a "wait" record are
/// left out. A reader in front of the collective belongs to the next pass. Sorted by reader.
std::vector<AwaitedCollective> awaited_collectives(const ExecutionGraph& graph);

}  // namespace perfmodel
