#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/plan_search.hpp"
#include "perfmodel/sharding/torchrec_plan.hpp"

namespace perfmodel::sharding {

struct TorchrecSpaceOptions {
  std::int64_t hbm_cap = 0;  ///< bytes per rank for tables, such as usable_hbm()
  /// More least widths for pieces of columns, tried beside each table's own; TorchRec has none.
  std::vector<std::int64_t> least_columns = {};
};

/// What TorchRec's planner chooses from, at its costs: one phase, in milliseconds.
struct TorchrecSpace {
  PlanSpace space;
  /// Per table of the space, the tables that it stands for: several where they must lie together.
  std::vector<std::vector<std::uint32_t>> tables;
};

/// Each table may take the types and kernels that its rules name; by default all types except grid,
/// and kernels that keep rows in HBM (dense for data-parallel tables, fused for the others). Tables
/// that share `keep_with` are placed table-wise, as one. Options that exceed a rank's memory are
/// left out, unless a table has no others. Tables that are alike share their choices.
///
/// Errors (kImpossible): what torchrec_costs() refuses; rules that allow nothing; no memory.
Result<TorchrecSpace> make_torchrec_space(std::span<const ShardedTable> tables,
                                          const TorchrecTopology& topology,
                                          const TorchrecSettings& settings,
                                          const TorchrecSpaceOptions& options);

/// A plan of that space, for each of the tables that it was made from.
std::vector<TablePlacement> placements_of(const TorchrecSpace& space, const FoundPlan& plan);

}  // namespace perfmodel::sharding
