#include "perfmodel/sharding/detail/torchrec_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "refuse_table.hpp"

namespace perfmodel::sharding {

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
  PERFMODEL_TRY_TO(check_placements(tables, placements));
  TorchrecRating rating;
  rating.ranks.resize(std::max<std::int64_t>(0, topology.world));
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TablePlacement& placement = placements[t];
    ShardedTable table = tables[t];
    if (placement.least_columns > 0) table.least_columns = placement.least_columns;
    PERFMODEL_TRY(costs,
                  torchrec_costs(table, placement.type, placement.kernel, topology, settings));
    PERFMODEL_TRY(
        ranks, shard_ranks(table, placement, costs->size(), topology.world, topology.local_world));
    for (std::size_t i = 0; i < costs->size(); ++i) {
      rating.ranks[(*ranks)[i]] += (*costs)[i];
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
    return decline(
        fmt::format("expected memory for tables, found none: {} bytes of HBM, {} of them free, {} "
                    "for dense parameters, {} for ids",
                    topology.hbm_cap, topology.hbm_cap - share, kDenseCopies * dense_bytes,
                    kBatches * batch_bytes));
  }
  return left;
}

}  // namespace perfmodel::sharding
