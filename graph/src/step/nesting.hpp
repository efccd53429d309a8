#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Every rewrite that copies a graph checks this first: a node follows its parent, runs on the same
/// thread and begins before the parent ends. Threads and orphans may begin anywhere. Recordings are
/// like that; the error names the first node that is not.
Result<void> check_nesting(const ExecutionGraph& graph);

}  // namespace perfmodel
