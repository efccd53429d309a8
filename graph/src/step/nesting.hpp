#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// What every rewrite that copies a graph asks of it first: a node stands behind its parent, on the
/// thread of its parent and before anything else ends that parent. Threads begin anywhere, and so
/// do orphans. Recordings are like that; the error names the first node that is not.
Result<void> check_nesting(const ExecutionGraph& graph);

}  // namespace perfmodel
