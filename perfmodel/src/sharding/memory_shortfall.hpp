#pragma once

#include <span>
#include <string>

#include "perfmodel/sharding/detail/embedding_shards.hpp"
#include "perfmodel/sharding/detail/plan_search.hpp"

namespace perfmodel::sharding {

/// Describes the missing memory of a space and remedies, in one line: the tables together or one of
/// them, the shortfall, and three fixes with their figures (more GPUs, smaller elements or states,
/// other ways to cut, host memory). Empty if nothing is certain to be short.
std::string describe_shortfall(std::span<const ShardedTable> tables, const PlanSpace& space);

}  // namespace perfmodel::sharding
