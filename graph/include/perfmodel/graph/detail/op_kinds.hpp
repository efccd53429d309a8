#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The ops of a trace without those that repeat others: what work each does can be asked of far
/// fewer nodes. Its order and the waits between its ops mean nothing.
struct OpKinds {
  ExecutionGraph graph;
  std::vector<std::int32_t> event_of_node;  ///< per node, index into Trace::host; -1: no event
  /// For each host event, the event that represents it in `graph`, with the same arguments; -1:
  /// none.
  std::vector<std::int32_t> like;
};

/// Errors: a trace without an op.
Result<OpKinds> op_kinds_of_trace(const Trace& trace);

}  // namespace perfmodel
