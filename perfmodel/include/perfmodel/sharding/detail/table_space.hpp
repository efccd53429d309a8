#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/sharding/detail/plan_search.hpp"
#include "perfmodel/sharding/detail/torchrec_plan.hpp"

namespace perfmodel::sharding {

/// A space of plans for tables with names and rules, whatever the costs.
struct TableSpace {
  PlanSpace space;
  /// Per table of the space, the tables that it stands for: several where they must lie together.
  std::vector<std::vector<std::uint32_t>> tables;
};

/// A plan of that space, for each of the tables that it was made from.
std::vector<TablePlacement> placements_of(const TableSpace& space, const FoundPlan& plan);

}  // namespace perfmodel::sharding
