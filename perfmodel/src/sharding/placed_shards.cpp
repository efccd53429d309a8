#include "placed_shards.hpp"

#include "refuse_table.hpp"

namespace perfmodel::sharding {
namespace {

/// Row k is on the (k modulo n)-th of n ranks.
Result<std::vector<ShardSize>> row_classes(const ShardedTable& table, std::size_t ranks) {
  if (ranks == 0) {
    return refuse_table(table, "ranks for its rows", "none");
  }
  const auto count = static_cast<std::int64_t>(ranks);
  std::vector<ShardSize> sizes;
  for (std::int64_t i = 0; i < count; ++i) {
    sizes.push_back({table.rows / count + (i < table.rows % count ? 1 : 0), table.dim});
  }
  return sizes;
}

}  // namespace

std::vector<ShardSize> shard_offsets(const std::vector<ShardSize>& sizes, std::int64_t rows) {
  std::vector<ShardSize> offsets;
  ShardSize at;
  for (const ShardSize& size : sizes) {
    // The last blocks of a piece of columns may have no rows.
    if (at.rows == rows && size.rows > 0) at = {0, at.columns + size.columns};
    offsets.push_back(at);
    at.rows += size.rows;
  }
  return offsets;
}

Result<std::vector<ShardSize>> placed_sizes(const ShardedTable& given,
                                            const TablePlacement& placement, std::int64_t world,
                                            std::int64_t local_world) {
  if (is_row_split(placement.type)) return row_classes(given, placement.ranks.size());
  if (placement.least_columns == 0 || !cuts_columns(placement.type)) {
    return shard_sizes(given, placement.type, world, local_world);
  }
  ShardedTable table = given;
  table.least_columns = placement.least_columns;
  return shard_sizes(table, placement.type, world, local_world);
}

Result<std::vector<PlacedShard>> placed_shards(const ShardedTable& table,
                                               const TablePlacement& placement, std::int64_t world,
                                               std::int64_t local_world) {
  PERFMODEL_TRY(sizes, placed_sizes(table, placement, world, local_world));
  PERFMODEL_TRY(ranks, shard_ranks(table, placement, sizes->size(), world, local_world));
  const bool whole = is_row_split(placement.type) || placement.type == ShardingType::kDataParallel;
  const std::vector<ShardSize> offsets =
      whole ? std::vector<ShardSize>(sizes->size()) : shard_offsets(*sizes, table.rows);
  std::vector<PlacedShard> shards;
  for (std::size_t i = 0; i < sizes->size(); ++i) {
    shards.push_back({.rank = (*ranks)[i], .offset = offsets[i], .size = (*sizes)[i]});
  }
  return shards;
}

}  // namespace perfmodel::sharding
