#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
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

/// The graph that a timed trace shows: ops, their nesting, arguments and threads.
///
/// - Nodes are the ops and annotations of `Trace::host`, in start order over all threads; parents
///   are found by time. Ops of no length at one stamp are nested like ops of the same names with
///   clear stamps.
/// - Arguments come from the recorded shapes, types and values (`record_shapes`); results are not
///   recorded. A tensor is on the GPU if its op gave work to the device; a copy shows which of its
///   sides is on the host. Every mention is its own tensor, since a trace does not show equal ones.
///   One case is inferred from the times: an op whose work began right at the end of a collective
///   on another stream, for nothing else, touches its memory.
/// - Collectives take kind, group, number and size from their records, else from the labels inside
///   ("nccl:all_reduce").
///
/// - Without record function ids in the trace, `Node::rf_id` is the place within the step, in start
///   order.
///
/// `ExecutionGraph::schema` is "kineto". Errors: a trace without an op.
Result<TraceGraph> graph_from_trace(const Trace& trace);

/// Whether a graph was made of a timed trace.
bool is_from_trace(const ExecutionGraph& graph);

/// Whether a graph of a trace knows no sizes: it was recorded without shapes.
bool lacks_sizes(const ExecutionGraph& graph);

/// Error if `graph` was made of a trace, which does not record which tensors are the same;
/// `purpose` needs that: "--sequence".
Result<void> check_tensors_known(const ExecutionGraph& graph, std::string_view purpose);

/// A program as a file recorded it.
struct RecordedProgram {
  ExecutionGraph graph;
  /// The source of the graph; null: the file is a graph.
  std::shared_ptr<const Trace> trace;
};

/// Reads an execution graph, or a Kineto trace in its place. Errors: as for the readers; a trace
/// without an op; a trace on standard input, since it would have to be read twice.
Result<RecordedProgram> read_recorded_program(const std::filesystem::path& file,
                                              const ReadOptions& options = {});

Result<RecordedProgram> program_of_trace(Trace trace);

/// Whether the head of a file names the events of a trace and no nodes before them. A guess, false
/// of pipes, that saves reading a trace as a graph first.
bool begins_like_trace(const std::filesystem::path& file);

/// Whether the reader of graphs refused a file because it is a trace.
bool is_trace_in_place_of_graph(const Error& error);

}  // namespace perfmodel
