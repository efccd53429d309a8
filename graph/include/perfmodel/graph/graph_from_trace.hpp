#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// An execution graph that a Kineto trace tells of, and where each of its nodes is in the trace.
struct TraceGraph {
  ExecutionGraph graph;
  std::vector<std::int32_t> event_of_node;  ///< per node, index into Trace::host; -1: no event
  std::size_t ops = 0, ops_with_sizes = 0;
};

/// What a timed trace says of the ops, their nesting, arguments and threads:
///
/// - Nodes are the ops and annotations of `Trace::host`, in start order over all threads; parents
///   are found by time. Ops of no length at one stamp are nested as ops of their names are where
///   the stamps tell.
/// - Arguments come from the recorded shapes, types and values (`record_shapes`); results are not
///   recorded. A tensor lives on the GPU if its op gave work to the device, on the host side of a
///   copy where the copy tells. Every tensor is its own: which ones are the same is not recorded.
///   One case is inferred from the times: an op whose work began right at the end of a collective
///   on another stream, for nothing else, touches its memory.
/// - Collectives have the kind, group, number and size of their records, else those of the labels
///   inside ("nccl:all_reduce").
///
/// `ExecutionGraph::schema` is "kineto". Errors: a trace without an op.
Result<TraceGraph> graph_from_trace(const Trace& trace);

/// Whether a graph was made from a timed trace.
bool is_from_trace(const ExecutionGraph& graph);

/// Whether it knows no sizes: of a trace without shapes. Rewrites that need sizes refuse it.
bool lacks_sizes(const ExecutionGraph& graph);

}  // namespace perfmodel
