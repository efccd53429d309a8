#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One pass of the graph through the trace: which host event each node was.
struct GraphOccurrence {
  std::vector<std::int32_t> event_of_node;  ///< per node, index into Trace::host; -1: not found
  std::int64_t begin_ns = 0, end_ns = 0;    ///< first start and last end of the linked events
};

struct GraphLink {
  enum class Method {
    kRecordFunctionId,  ///< `Record function id` == rf_id, names equal (2024 on)
    kExternalId,        ///< `External id` == rf_id, names equal (rare)
    kThreadOrder,       ///< same names in start order on each thread
    kAlignment,         ///< thread order with some events missing on either side
  } method = Method::kThreadOrder;
  std::vector<GraphOccurrence> occurrences;  ///< in time order
  std::size_t linked_nodes = 0;              ///< linked to their first occurrence
  std::size_t nodes = 0;  ///< candidates for a link (structural nodes have no event)
};
std::string_view to_string(GraphLink::Method method);

/// Finds the graph's nodes in a trace of the same program. A graph of one step is found as often as
/// the trace repeats it. Ties of equal stamps are ordered by `Ev Idx`. Fails if fewer than half of
/// the nodes can be found.
Result<GraphLink> link(const ExecutionGraph& graph, const Trace& trace);

}  // namespace perfmodel
