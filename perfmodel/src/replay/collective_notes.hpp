#pragma once

#include <cstddef>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Gives the collectives of a trace the sizes (and ranks) that its graph knows and the trace did
/// not record: each step of the trace gets the graph's one step, in order. Returns how many were
/// given. Errors: another number or other kinds of collectives than the graph has.
Result<std::size_t> note_collectives(const ExecutionGraph& graph, Trace& trace);

}  // namespace perfmodel
