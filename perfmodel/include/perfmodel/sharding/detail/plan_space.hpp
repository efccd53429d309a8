#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "perfmodel/sharding/detail/embedding_shards.hpp"

/// The input of a search for plans, whatever model prices the shards.
namespace perfmodel::sharding {

/// Parts of a batch that all ranks pass one after the other.
inline constexpr std::size_t kMostPhases = 6;
using PhaseLoads = std::array<double, kMostPhases>;

/// The load of one shard on its rank.
struct ShardDemand {
  PhaseLoads loads{};  ///< per phase, in the unit of the objective
  std::int64_t hbm_bytes = 0, ddr_bytes = 0;
  bool operator==(const ShardDemand&) const = default;
};

/// One way to cut a table. Which ranks may have its shards follows from `type`:
///   data-parallel, row-wise               shard k on rank k
///   table-wise, column-wise, row-split    any ranks, no two shards on one
///   table-column-wise                     ranks of one host, no two shards on one
///   table-row-wise, grid, host-row-split  blocks of L shards in a row, each on the L ranks of a
///                                         host (shard k of a block on the k-th), no two on one
struct PlacementOption {
  ShardingType type = ShardingType::kTableWise;
  ComputeKernel kernel = ComputeKernel::kFused;
  std::int64_t least_columns = 0;  ///< smallest piece of columns, if unlike the table's own rule
  struct Run {
    std::int64_t count = 1;  ///< consecutive shards that are alike
    ShardDemand demand;
  };
  std::vector<Run> shards;
  TableSettings settings = {};  ///< that a plan with this option has
};

/// The choices of one table, or of many that are alike.
struct TableChoices {
  std::vector<PlacementOption> options;  ///< none: the table fits nowhere
  std::vector<std::int64_t> forbidden_ranks;
};

/// Objective of a plan: sum over phases p of max(floor_p, max over ranks of their loads in p).
struct PlanSpace {
  std::int64_t world = 1, local_world = 1;
  std::int64_t hbm_cap = std::numeric_limits<std::int64_t>::max();  ///< per rank, for tables
  std::int64_t ddr_cap = std::numeric_limits<std::int64_t>::max();  ///< per rank
  std::size_t phases = 1;
  PhaseLoads floors{};
  std::vector<TableChoices> choices;
  std::vector<std::uint32_t> choices_of_table;  ///< per table: into `choices`
};

}  // namespace perfmodel::sharding
