#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Checks a rewritten graph: a recording that contradicts itself may become no graph of a program.
/// Errors (kImpossible): an op reads a tensor, or memory, that `source` makes before and `made`
/// does not; nodes are no longer inside of each other.
Result<void> check_written(const ExecutionGraph& source, const ExecutionGraph& made);

}  // namespace perfmodel
