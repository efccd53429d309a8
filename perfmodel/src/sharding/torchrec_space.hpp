#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/table_space.hpp"

namespace perfmodel::sharding {

struct TorchrecSpaceOptions {
  std::int64_t hbm_cap = 0;  ///< bytes per rank for tables, such as usable_hbm()
  /// More least widths for pieces of columns, in addition to each table's own; TorchRec has none.
  std::vector<std::int64_t> least_columns = {};
};

/// The options and costs of TorchRec's planner: one phase, in milliseconds.
///
/// Each table may take the types and kernels that its rules name; by default all types except grid,
/// and kernels that keep rows in HBM (dense for data-parallel tables, fused for the others). Tables
/// that share `keep_with` are placed table-wise, as one. Options that exceed a rank's memory are
/// left out, unless a table has no others. Tables that are alike share their choices.
///
/// Errors (kImpossible): errors of torchrec_costs(); rules that allow nothing; no memory.
Result<TableSpace> make_torchrec_space(std::span<const ShardedTable> tables,
                                       const TorchrecTopology& topology,
                                       const TorchrecSettings& settings,
                                       const TorchrecSpaceOptions& options);

}  // namespace perfmodel::sharding
