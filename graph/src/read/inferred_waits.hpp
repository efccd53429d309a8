#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "trace_nesting.hpp"

namespace perfmodel {

/// Lets the ops whose work waited for a collective, as the times of the trace tell, touch its
/// memory. `id_of_event`: per host event the id of its node in `graph`, which is the place of that
/// plus 1; 0: it has none.
void infer_waits(const Trace& trace, const TraceNesting& nesting,
                 const std::vector<std::int64_t>& id_of_event, ExecutionGraph& graph);

}  // namespace perfmodel
