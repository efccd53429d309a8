#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

/// The layers round the lookups of a recommender's first step (see tables_in_graph()). None without
/// linear layers, or if they are not understood; then `why` has the reason.
std::optional<DensePart> layers_in_graph(const ExecutionGraph& graph,
                                         const std::vector<ShardedTable>& tables, std::string& why);

}  // namespace perfmodel::sharding
