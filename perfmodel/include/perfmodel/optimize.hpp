#pragma once

#include "perfmodel/detail/advice.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/what_if.hpp"

/// What to change about a training step: a search over sequences of rewrites that the critical path
/// of the best step so far guides.
namespace perfmodel {

/// What each term of a step costs at best. Where none gains beside those above, because another one
/// takes as long, the one that takes longest comes next. One rank, alone or of ranks that are all
/// alike. Times are those of the host overheads, kernels and collectives that `predict` has;
/// nothing else of the schedule changes. Errors: those of `predict`.
Result<Ceiling> step_ceiling(const ExecutionGraph& graph, const WhatIfTarget& target);

/// Searches for the rewrites that make a step short.
///
/// Every allowed rewrite is predicted by itself; then a beam of the best sequences grows by one
/// rewrite at a time, until no rewrite makes any of them better. Free-op bound: a schedule without
/// some tasks is shorter by no more than what these take of its critical path, so a rewrite whose
/// ops and collectives hold less of the path than the search still needs to gain is not predicted.
/// What adds nothing to the best sequence leaves it at the end.
///
/// The answer is the same in every run unless the time budget ends the search, which it tells.
///
/// Errors: unknown or contradictory families, a limit of memory that no sequence meets (if the
/// limit was given), those of `predict` for the step as it is.
Result<Advice> optimize(const ExecutionGraph& graph, const WhatIfTarget& target,
                        const OptimizeOptions& options = {});

}  // namespace perfmodel
