#include <fmt/format.h>

#include <algorithm>

#include "base/contains.hpp"
#include "perfmodel/sharding/detail/plan_search.hpp"
#include "plan_search_space.hpp"

namespace perfmodel::sharding {
namespace {

using search::Spread;

std::vector<const ShardDemand*> demands_of(const PlacementOption& option) {
  std::vector<const ShardDemand*> demands;
  for (const PlacementOption::Run& run : option.shards) {
    demands.insert(demands.end(), static_cast<std::size_t>(run.count), &run.demand);
  }
  return demands;
}

std::int64_t rank_of(const PlacedChoice& placed, std::size_t shard) {
  return placed.ranks.empty() ? static_cast<std::int64_t>(shard) : placed.ranks[shard];
}

const TableChoices& choices_of(const PlanSpace& space, std::size_t table) {
  return space.choices[space.choices_of_table[table]];
}

Unexpected refuse_choice(std::size_t table, std::string_view expected, auto found) {
  return decline(fmt::format("table {}: expected {}, found {}", table, expected, found));
}

class Evaluation {
 public:
  Evaluation(const PlanSpace& space, std::span<const PlacedChoice> plan)
      : space_(space), plan_(plan), ranks_(space.world) {}

  Result<double> of() {
    if (plan_.size() != space_.choices_of_table.size()) {
      return decline(fmt::format("expected places of {} tables, found {}",
                                 space_.choices_of_table.size(), plan_.size()));
    }
    for (std::size_t t = 0; t < plan_.size(); ++t) PERFMODEL_TRY_TO(add(t));
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].hbm_bytes > space_.hbm_cap || ranks_[r].ddr_bytes > space_.ddr_cap) {
        return decline(fmt::format(
            "rank {}: expected at most {} bytes of HBM and {} of host memory, found {} and {}", r,
            space_.hbm_cap, space_.ddr_cap, ranks_[r].hbm_bytes, ranks_[r].ddr_bytes));
      }
    }
    double objective = 0;
    for (std::size_t p = 0; p < space_.phases; ++p) {
      double slowest = space_.floors[p];
      for (const ShardDemand& rank : ranks_) slowest = std::max(slowest, rank.loads[p]);
      objective += slowest;
    }
    return objective;
  }

 private:
  Result<void> add(std::size_t table) {
    const PlacedChoice& placed = plan_[table];
    const TableChoices& choices = choices_of(space_, table);
    if (placed.option >= choices.options.size()) {
      return refuse_choice(table, fmt::format("one of {} options", choices.options.size()),
                           placed.option);
    }
    const PlacementOption& option = choices.options[placed.option];
    const auto demands = demands_of(option);
    PERFMODEL_TRY_TO(check_ranks(table, option, demands.size()));
    for (std::size_t shard = 0; shard < demands.size(); ++shard) {
      ShardDemand& rank = ranks_[rank_of(placed, shard)];
      for (std::size_t p = 0; p < space_.phases; ++p) rank.loads[p] += demands[shard]->loads[p];
      rank.hbm_bytes += demands[shard]->hbm_bytes;
      rank.ddr_bytes += demands[shard]->ddr_bytes;
    }
    return {};
  }

  Result<void> check_ranks(std::size_t table, const PlacementOption& option,
                           std::size_t shards) const {
    const PlacedChoice& placed = plan_[table];
    const Spread spread = search::spread_of(option.type);
    if (placed.ranks.size() != shards && !(placed.ranks.empty() && spread == Spread::kEverywhere)) {
      return refuse_choice(table, fmt::format("a rank per shard, {} in all", shards),
                           placed.ranks.size());
    }
    const auto& forbidden = choices_of(space_, table).forbidden_ranks;
    std::vector<char> seen(ranks_.size(), 0);
    for (std::size_t shard = 0; shard < shards; ++shard) {
      const std::int64_t rank = rank_of(placed, shard);
      if (rank < 0 || rank >= space_.world) {
        return refuse_choice(table, fmt::format("ranks from 0 to {}", space_.world - 1), rank);
      }
      if (contains(forbidden, rank)) return refuse_choice(table, "no forbidden rank", rank);
      if (seen[rank]++ != 0) {
        return refuse_choice(table, "a rank of its own for each shard",
                             fmt::format("{} twice", rank));
      }
      if (!is_its_place(spread, placed, shard)) {
        return refuse_choice(table, fmt::format("ranks that {} allows", to_string(option.type)),
                             fmt::format("shard {} on rank {}", shard, rank));
      }
    }
    return {};
  }

  bool is_its_place(Spread spread, const PlacedChoice& placed, std::size_t shard) const {
    const std::int64_t rank = rank_of(placed, shard), on_host = space_.local_world;
    const auto place = static_cast<std::int64_t>(shard);
    switch (spread) {
      case Spread::kEverywhere: return rank == place;
      case Spread::kFree: return true;
      case Spread::kOneHost: return rank / on_host == rank_of(placed, 0) / on_host;
      case Spread::kHostBlocks:
        return rank % on_host == place % on_host &&
               rank / on_host ==
                   rank_of(placed, static_cast<std::size_t>(place / on_host * on_host)) / on_host;
    }
    return false;
  }

  const PlanSpace& space_;
  std::span<const PlacedChoice> plan_;
  std::vector<ShardDemand> ranks_;
};

}  // namespace

Result<double> search::objective_of(const PlanSpace& space, std::span<const PlacedChoice> plan) {
  return Evaluation(space, plan).of();
}

Result<double> evaluate_plan(const PlanSpace& space, std::span<const PlacedChoice> plan) {
  PERFMODEL_TRY_TO(search::check_space(space));
  return search::objective_of(space, plan);
}

}  // namespace perfmodel::sharding
