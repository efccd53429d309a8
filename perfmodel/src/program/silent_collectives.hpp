#pragma once

#include <cstddef>
#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Number of collectives and messages that have no record. A fake process group leaves such ops
/// (torch.distributed with backend "fake": one process is rank 0 of a job and exchanges nothing).
std::size_t silent_collectives(const ExecutionGraph& graph);

/// The graph in which each of these ops is its own record. Its group is the one that it names, else
/// the only one that the graph describes, else all `world` ranks; messages have a group of two.
/// Errors: ops that name no group in a graph that describes groups of several sizes.
Result<ExecutionGraph> record_silent_collectives(const ExecutionGraph& graph, std::int64_t world);

/// The other rank of a send or receive, by the op or by the op around its record; -1: no message.
std::int64_t peer_of_message(const ExecutionGraph& graph, std::int32_t node);

}  // namespace perfmodel
