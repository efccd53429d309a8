#pragma once

#include "perfmodel/detail/advice.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/what_if.hpp"

/// A search for changes of a training step: over sequences of rewrites, guided by the critical path
/// of the best step so far.
namespace perfmodel {

/// The most that removing each term of a step can gain. If no further term gains anything, because
/// another one takes as long, the longest remaining one comes next. For one rank, or for ranks that
/// are all alike. Uses the host overheads, kernels and collectives of `predict` and leaves the rest
/// of the schedule as it is. Errors: as for `predict`.
Result<Ceiling> step_ceiling(const ExecutionGraph& graph, const WhatIfTarget& target);

/// Searches for the rewrites that make a step short.
///
/// Every allowed rewrite is predicted by itself; then a beam of the best sequences grows by one
/// rewrite at a time, until no rewrite improves any of them. Free-op bound: removing tasks shortens
/// a schedule by at most their part of its critical path, so a rewrite is not predicted if its ops
/// and collectives hold less of the path than the search still needs to gain. Rewrites that add
/// nothing to the best sequence are dropped at the end.
///
/// The answer is the same in every run unless the time budget ends the search; then it says so.
///
/// Errors: unknown or contradictory families, a given memory limit that no sequence meets, as for
/// `predict` for the step as it is.
Result<Advice> optimize(const ExecutionGraph& graph, const WhatIfTarget& target,
                        const OptimizeOptions& options = {});

}  // namespace perfmodel
