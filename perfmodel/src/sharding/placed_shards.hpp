#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/sharding/detail/torchrec_plan.hpp"

namespace perfmodel::sharding {

struct PlacedShard {
  std::int64_t rank = 0;
  ShardSize offset, size;  ///< offset: row and column of its first element
};

/// shard_sizes() with the placement's own width of columns; of row-splits a size per rank.
Result<std::vector<ShardSize>> placed_sizes(const ShardedTable& table,
                                            const TablePlacement& placement, std::int64_t world,
                                            std::int64_t local_world);

/// Row and column of the first element of each shard, in the order of shard_sizes().
std::vector<ShardSize> shard_offsets(const std::vector<ShardSize>& sizes, std::int64_t rows);

/// The shards of a table as its placement cuts it. Errors of shard_sizes() and shard_ranks().
Result<std::vector<PlacedShard>> placed_shards(const ShardedTable& table,
                                               const TablePlacement& placement, std::int64_t world,
                                               std::int64_t local_world);

}  // namespace perfmodel::sharding
