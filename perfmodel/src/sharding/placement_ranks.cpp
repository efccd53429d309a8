#include "perfmodel/sharding/detail/torchrec_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "refuse_table.hpp"

namespace perfmodel::sharding {
namespace {

bool is_everywhere(ShardingType type) {
  return type == ShardingType::kDataParallel || type == ShardingType::kRowWise;
}

// Number of row blocks that must be on the ranks of one host; 1: each shard on its own.
std::size_t blocks_on_a_host(ShardingType type, std::int64_t local_world) {
  const bool rows = type == ShardingType::kTableRowWise || type == ShardingType::kGrid ||
                    type == ShardingType::kHostRowSplit;
  return rows ? static_cast<std::size_t>(local_world) : 1;
}

// Searches ask a million times: sorting is faster than a set.
std::size_t different_ranks(std::span<const std::int64_t> ranks) {
  std::vector<std::int64_t> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  return static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
}

Result<void> check_host_blocks(const ShardedTable& table, const std::vector<std::int64_t>& ranks,
                               std::int64_t local_world, std::size_t blocks) {
  for (std::size_t begin = 0; begin + blocks <= ranks.size(); begin += blocks) {
    const std::span<const std::int64_t> piece(ranks.data() + begin, blocks);
    const std::int64_t host = piece.front() / local_world;
    const bool one_host = std::all_of(
        piece.begin(), piece.end(), [&](std::int64_t rank) { return rank / local_world == host; });
    if (!one_host || different_ranks(piece) != piece.size()) {
      return refuse_table(table, "each block of rows on a rank of its own on one host",
                          fmt::format("ranks {}", fmt::join(piece, ", ")));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::int64_t>> shard_ranks(const ShardedTable& table,
                                              const TablePlacement& placement, std::size_t shards,
                                              std::int64_t world, std::int64_t local_world) {
  std::vector<std::int64_t> ranks = placement.ranks;
  if (ranks.empty() && is_everywhere(placement.type)) {
    ranks.resize(shards);
    std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
    if (shards == static_cast<std::size_t>(world)) return ranks;
  }
  if (ranks.size() != shards) {
    return refuse_table(table, fmt::format("a rank per shard, {} in all", shards), ranks.size());
  }
  for (std::int64_t rank : ranks) {
    if (rank < 0 || rank >= world) {
      return refuse_table(table, fmt::format("ranks from 0 to {}", world - 1), rank);
    }
  }
  const bool apart = is_everywhere(placement.type) || placement.type == ShardingType::kRowSplit ||
                     placement.type == ShardingType::kHostRowSplit;
  const std::size_t different = apart ? different_ranks(ranks) : ranks.size();
  if (different != ranks.size()) {
    return refuse_table(table, "a rank of its own for every shard",
                        fmt::format("{} ranks for {} shards", different, ranks.size()));
  }
  const std::size_t blocks = blocks_on_a_host(placement.type, local_world);
  if (blocks > 1) PERFMODEL_TRY_TO(check_host_blocks(table, ranks, local_world, blocks));
  return ranks;
}

}  // namespace perfmodel::sharding
