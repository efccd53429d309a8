#pragma once

#include <optional>

#include "perfmodel/detail/advice.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/what_if.hpp"

namespace perfmodel::advice {

/// Advice of the planner of embedding tables (`shard`) on the graph's tables on `options.world`
/// ranks. None without tables, without a batch, on one rank, or if the planner refuses them; then
/// `why` has its sentence.
std::optional<TablePlanAdvice> table_plan(const ExecutionGraph& graph, const WhatIfTarget& target,
                                          const OptimizeOptions& options, std::string& why);

}  // namespace perfmodel::advice
