#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/torchrec_costs.hpp"

namespace perfmodel::sharding {

/// How one table is cut and where its shards lie: a rank per shard, in the order of shard_sizes().
/// What every rank has a part of (data-parallel, row-wise) may leave `ranks` empty.
struct TablePlacement {
  ShardingType type = ShardingType::kTableWise;
  ComputeKernel kernel = ComputeKernel::kFused;
  std::vector<std::int64_t> ranks = {};
  std::int64_t least_columns = 0;  ///< smallest piece of columns; 0: the table's own
  TableSettings settings = {};     ///< calibrated costs only
  bool operator==(const TablePlacement&) const = default;
};

/// The rank of every shard of a table that is cut into `shards` pieces.
///
/// Errors (kImpossible): another number of ranks than shards; ranks outside of the job;
/// data-parallel or row-wise shards that are not one per rank; rows cut on a host that lie on
/// several hosts, or twice on one rank.
Result<std::vector<std::int64_t>> shard_ranks(const ShardedTable& table,
                                              const TablePlacement& placement, std::size_t shards,
                                              std::int64_t world, std::int64_t local_world);

/// A plan as TorchRec's planner rates it.
struct TorchrecRating {
  std::vector<TorchrecCost> ranks;  ///< sums over the shards of each

  double rating_ms() const;          ///< the largest load of a rank; the least is best
  double mean_ms() const;            ///< over the ranks
  std::int64_t largest_hbm() const;  ///< on any rank
  std::size_t slowest_rank() const;  ///< the first with that load
};

/// A placement per table, in the same order.
///
/// Errors (kImpossible): another number of placements than tables; what torchrec_costs() and
/// shard_ranks() refuse.
Result<TorchrecRating> rate_plan(std::span<const ShardedTable> tables,
                                 std::span<const TablePlacement> placements,
                                 const TorchrecTopology& topology,
                                 const TorchrecSettings& settings);

/// HBM that is left for tables on a rank under TorchRec's heuristic: a share of the memory stays
/// free, dense parameters count six times, ids of 20 batches are held back.
///
/// Errors (kImpossible): nothing is left.
Result<std::int64_t> usable_hbm(std::span<const ShardedTable> tables,
                                const TorchrecTopology& topology, const TorchrecSettings& settings,
                                double free_share = 0.15, std::int64_t dense_bytes = 0);

}  // namespace perfmodel::sharding
