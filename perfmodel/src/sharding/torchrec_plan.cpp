#include "perfmodel/sharding/torchrec_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace perfmodel::sharding {
namespace {

bool is_everywhere(ShardingType type) {
  return type == ShardingType::kDataParallel || type == ShardingType::kRowWise;
}

// Blocks of rows that must lie on the ranks of one host; 1: each shard on its own.
std::size_t blocks_on_a_host(ShardingType type, const TorchrecTopology& topology) {
  const bool rows = type == ShardingType::kTableRowWise || type == ShardingType::kGrid;
  return rows ? static_cast<std::size_t>(topology.local_world) : 1;
}

Unexpected refuse(const ShardedTable& table, std::string_view expected, auto found) {
  return fail(ErrorCode::kImpossible,
              fmt::format("table {}: expected {}, found {}", table.name, expected, found));
}

Result<void> check_host_blocks(const ShardedTable& table, const std::vector<std::int64_t>& ranks,
                               const TorchrecTopology& topology, std::size_t blocks) {
  for (std::size_t begin = 0; begin + blocks <= ranks.size(); begin += blocks) {
    const std::span<const std::int64_t> piece(ranks.data() + begin, blocks);
    const std::int64_t host = piece.front() / topology.local_world;
    const std::set<std::int64_t> different(piece.begin(), piece.end());
    const bool one_host = std::all_of(piece.begin(), piece.end(), [&](std::int64_t rank) {
      return rank / topology.local_world == host;
    });
    if (!one_host || different.size() != piece.size()) {
      return refuse(table, "each block of rows on a rank of its own on one host",
                    fmt::format("ranks {}", fmt::join(piece, ", ")));
    }
  }
  return {};
}

Result<std::vector<std::int64_t>> ranks_of(const ShardedTable& table,
                                           const TablePlacement& placement, std::size_t shards,
                                           const TorchrecTopology& topology) {
  std::vector<std::int64_t> ranks = placement.ranks;
  if (ranks.empty() && is_everywhere(placement.type)) {
    ranks.resize(shards);
    std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  }
  if (ranks.size() != shards) {
    return refuse(table, fmt::format("a rank per shard, {} in all", shards), ranks.size());
  }
  for (std::int64_t rank : ranks) {
    if (rank < 0 || rank >= topology.world) {
      return refuse(table, fmt::format("ranks from 0 to {}", topology.world - 1), rank);
    }
  }
  const std::set<std::int64_t> different(ranks.begin(), ranks.end());
  if (is_everywhere(placement.type) && different.size() != ranks.size()) {
    return refuse(table, "a shard on every rank", fmt::format("{} ranks", different.size()));
  }
  const std::size_t blocks = blocks_on_a_host(placement.type, topology);
  if (blocks > 1) {
    if (auto good = check_host_blocks(table, ranks, topology, blocks); !good) {
      return Unexpected{good.error()};
    }
  }
  return ranks;
}

}  // namespace

double TorchrecRating::rating_ms() const {
  return ranks.empty() ? 0 : ranks[slowest_rank()].total_ms();
}

double TorchrecRating::mean_ms() const {
  double sum = 0;
  for (const TorchrecCost& load : ranks) sum += load.total_ms();
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

std::int64_t TorchrecRating::largest_hbm() const {
  std::int64_t most = 0;
  for (const TorchrecCost& load : ranks) most = std::max(most, load.hbm_bytes);
  return most;
}

std::size_t TorchrecRating::slowest_rank() const {
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(),
                       [](const auto& a, const auto& b) { return a.total_ms() < b.total_ms(); });
  return static_cast<std::size_t>(slowest - ranks.begin());
}

Result<TorchrecRating> rate_plan(std::span<const ShardedTable> tables,
                                 std::span<const TablePlacement> placements,
                                 const TorchrecTopology& topology,
                                 const TorchrecSettings& settings) {
  if (tables.size() != placements.size()) {
    return fail(ErrorCode::kImpossible, fmt::format("expected placements of {} tables, found {}",
                                                    tables.size(), placements.size()));
  }
  TorchrecRating rating;
  rating.ranks.resize(static_cast<std::size_t>(std::max<std::int64_t>(0, topology.world)));
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TablePlacement& placement = placements[t];
    ShardedTable cut = tables[t];
    if (placement.least_columns > 0) cut.least_columns = placement.least_columns;
    const auto costs = torchrec_costs(cut, placement.type, placement.kernel, topology, settings);
    if (!costs) return Unexpected{costs.error()};
    const auto ranks = ranks_of(tables[t], placement, costs->size(), topology);
    if (!ranks) return Unexpected{ranks.error()};
    for (std::size_t i = 0; i < costs->size(); ++i) {
      rating.ranks[static_cast<std::size_t>((*ranks)[i])] += (*costs)[i];
    }
  }
  return rating;
}

Result<std::int64_t> usable_hbm(std::span<const ShardedTable> tables,
                                const TorchrecTopology& topology, const TorchrecSettings& settings,
                                double free_share, std::int64_t dense_bytes) {
  constexpr std::int64_t kDenseCopies = 6, kBatches = 20, kIdBytes = 8;
  double ids = 0;
  for (const ShardedTable& table : tables) {
    for (const TableFeature& feature : table.features) {
      ids += feature.pooling_factor * static_cast<double>(feature.batch.value_or(settings.batch));
    }
  }
  const auto share =
      static_cast<std::int64_t>((1 - free_share) * static_cast<double>(topology.hbm_cap));
  const auto batch_bytes = static_cast<std::int64_t>(std::ceil(kIdBytes * ids));
  const std::int64_t left = share - kDenseCopies * dense_bytes - kBatches * batch_bytes;
  if (left <= 0) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected memory for tables, found none: {} bytes of HBM, {} of them "
                            "free, {} for dense parameters, {} for ids",
                            topology.hbm_cap, topology.hbm_cap - share, kDenseCopies * dense_bytes,
                            kBatches * batch_bytes));
  }
  return left;
}

}  // namespace perfmodel::sharding
