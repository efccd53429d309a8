#include "plan_search_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/impossible.hpp"
#include "perfmodel/sharding/detail/shortfall.hpp"

namespace perfmodel::sharding::search {
namespace {

bool is_amount(double value) { return value >= 0 && std::isfinite(value); }

// Sums of bytes over tables stay in 64 bits.
constexpr double kMostBytes = 4e18;
constexpr std::int64_t kMostShards = std::int64_t{1} << 24;

Result<void> check_shards(const PlanSpace& space, const PlacementOption& option) {
  std::int64_t shards = 0;
  for (const PlacementOption::Run& run : option.shards) {
    if (run.count < 1 || run.count > kMostShards) return impossible("runs of shards", run.count);
    shards += run.count;
    for (double load : run.demand.loads) {
      if (!is_amount(load)) return impossible("loads from 0", load);
    }
    if (run.demand.hbm_bytes < 0 || run.demand.ddr_bytes < 0) {
      return impossible("bytes from 0", std::min(run.demand.hbm_bytes, run.demand.ddr_bytes));
    }
  }
  const Spread spread = spread_of(option.type);
  const bool good = spread == Spread::kEverywhere   ? shards == space.world
                    : spread == Spread::kHostBlocks ? shards > 0 && shards % space.local_world == 0
                                                    : shards > 0 && shards <= kMostShards;
  if (!good) {
    return impossible(fmt::format("as many {} shards as {} ranks, {} per host, ask for",
                                  to_string(option.type), space.world, space.local_world),
                      shards);
  }
  return {};
}

class Flattening {
 public:
  explicit Flattening(const PlanSpace& space) : space_(space) {
    flat_.world = static_cast<std::int32_t>(space.world);
    flat_.local_world = static_cast<std::int32_t>(space.local_world);
    flat_.hosts = flat_.world / flat_.local_world;
    flat_.hbm_cap = space.hbm_cap;
    flat_.ddr_cap = space.ddr_cap;
    flat_.phases = space.phases;
    flat_.floors = space.floors;
  }

  Result<FlatSpace> of() {
    for (const TableChoices& choices : space_.choices) add(choices);
    double most_bytes = 0;
    for (std::size_t t = 0; t < space_.choices_of_table.size(); ++t) {
      Choice& choice = flat_.choices[space_.choices_of_table[t]];
      if (choice.options == 0) return fits_nowhere(t);
      ++choice.tables;
      flat_.choice_of.push_back(space_.choices_of_table[t]);
      flat_.first_place.push_back(flat_.places);
      flat_.places += static_cast<std::uint32_t>(choice.most_pieces);
      most_bytes += most_bytes_of(choice);
    }
    if (most_bytes > kMostBytes) return impossible("less than 4e18 bytes of tables", most_bytes);
    return std::move(flat_);
  }

 private:
  Unexpected fits_nowhere(std::size_t table) const {
    const TableChoices& choices = space_.choices[space_.choices_of_table[table]];
    if (choices.options.empty()) {
      return decline(fmt::format("table {}: expected ways to place it, found none", table));
    }
    for (const Shortfall::Table& short_of : find_shortfall(space_).tables) {
      if (short_of.table != table) continue;
      return decline(
          fmt::format("table {}: expected shards of at most {} bytes of HBM and {} of host memory, "
                      "found at least {} and {}",
                      table, space_.hbm_cap, space_.ddr_cap, short_of.shard_hbm_bytes,
                      short_of.shard_ddr_bytes));
    }
    return decline(fmt::format(
        "table {}: expected a way to place it on {} ranks without {} forbidden ones, found none",
        table, space_.world, choices.forbidden_ranks.size()));
  }

  double most_bytes_of(const Choice& choice) const {
    double most = 0;
    for (std::uint32_t o = 0; o < choice.options; ++o) {
      const Option& option = flat_.options[choice.first_option + o];
      most = std::max(most, static_cast<double>(option.hbm) + static_cast<double>(option.ddr));
    }
    return most;
  }

  std::int32_t mask_of(const std::vector<std::int64_t>& forbidden) {
    if (forbidden.empty()) return -1;
    std::vector<char> ranks(flat_.world, 1);
    for (std::int64_t rank : forbidden) ranks[rank] = 0;
    std::vector<char> hosts(flat_.hosts, 1);
    for (std::int32_t rank = 0; rank < flat_.world; ++rank) {
      if (ranks[rank] == 0) {
        hosts[rank / flat_.local_world] = 0;
      }
    }
    for (std::size_t mask = 0; mask < flat_.allowed.size(); ++mask) {
      if (flat_.allowed[mask] == ranks) return static_cast<std::int32_t>(mask);
    }
    flat_.allowed.push_back(std::move(ranks));
    flat_.allowed_hosts.push_back(std::move(hosts));
    return static_cast<std::int32_t>(flat_.allowed.size() - 1);
  }

  void add(const TableChoices& choices) {
    Choice choice;
    choice.first_option = static_cast<std::uint32_t>(flat_.options.size());
    choice.mask = mask_of(choices.forbidden_ranks);
    for (std::size_t o = 0; o < choices.options.size(); ++o) {
      const std::size_t runs = flat_.runs.size();
      Option option = option_of(choices.options[o]);
      option.index = static_cast<std::uint32_t>(o);
      if (!is_usable(option, choice) || is_repeated(option, choice)) {
        flat_.runs.resize(runs);
        continue;
      }
      flat_.options.push_back(option);
      ++choice.options;
      choice.most_pieces = std::max(choice.most_pieces, option.pieces);
    }
    flat_.choices.push_back(choice);
  }

  Option option_of(const PlacementOption& from) {
    Option option;
    option.spread = spread_of(from.type);
    option.first_run = static_cast<std::uint32_t>(flat_.runs.size());
    PhaseLoads largest = space_.floors;
    std::int64_t shards = 0;
    for (const PlacementOption::Run& run : from.shards) {
      const auto begin = static_cast<std::int32_t>(shards);
      shards += run.count;
      Run flat{begin, static_cast<std::int32_t>(shards), run.demand, 0};
      for (std::size_t p = 0; p < space_.phases; ++p) {
        flat.load += run.demand.loads[p];
        option.loads[p] += static_cast<double>(run.count) * run.demand.loads[p];
        largest[p] = std::max(largest[p], run.demand.loads[p]);
      }
      for (std::size_t p = space_.phases; p < kMostPhases; ++p) flat.demand.loads[p] = 0;
      flat_.runs.push_back(flat);
      option.largest = std::max(option.largest, flat.load);
      add_bytes(option.hbm, run.count, run.demand.hbm_bytes);
      add_bytes(option.ddr, run.count, run.demand.ddr_bytes);
      option.hbm_max = std::max(option.hbm_max, run.demand.hbm_bytes);
      option.ddr_max = std::max(option.ddr_max, run.demand.ddr_bytes);
    }
    option.runs = static_cast<std::uint32_t>(flat_.runs.size()) - option.first_run;
    for (std::size_t p = 0; p < space_.phases; ++p) {
      option.load += option.loads[p];
      option.least_objective += largest[p];
    }
    const auto all = static_cast<std::int32_t>(shards);
    option.pieces = option.spread == Spread::kEverywhere   ? 0
                    : option.spread == Spread::kHostBlocks ? all / flat_.local_world
                                                           : all;
    if (option.spread == Spread::kOneHost && all == 1) option.spread = Spread::kFree;
    return option;
  }

  static void add_bytes(std::int64_t& sum, std::int64_t count, std::int64_t bytes) {
    constexpr std::int64_t kMost = std::int64_t{1} << 62;
    sum = bytes > (kMost - sum) / count ? kMost : sum + count * bytes;
  }

  bool is_usable(const Option& option, const Choice& choice) const {
    if (option.hbm_max > flat_.hbm_cap || option.ddr_max > flat_.ddr_cap) return false;
    std::int32_t ranks = 0, hosts = 0, most_on_a_host = 0;
    for (std::int32_t host = 0; host < flat_.hosts; ++host) {
      std::int32_t here = 0;
      for (std::int32_t i = 0; i < flat_.local_world; ++i) {
        here += flat_.may_use(choice, host * flat_.local_world + i) ? 1 : 0;
      }
      ranks += here;
      hosts += here == flat_.local_world ? 1 : 0;
      most_on_a_host = std::max(most_on_a_host, here);
    }
    switch (option.spread) {
      case Spread::kEverywhere: return ranks == flat_.world;
      case Spread::kFree: return option.pieces <= ranks;
      case Spread::kOneHost: return option.pieces <= most_on_a_host;
      case Spread::kHostBlocks: return option.pieces <= hosts;
    }
    return false;
  }

  bool same_shards(const Option& a, const Option& b) const {
    if (a.runs != b.runs || a.pieces != b.pieces) return false;
    for (std::uint32_t i = 0; i < a.runs; ++i) {
      const Run &x = flat_.runs[a.first_run + i], &y = flat_.runs[b.first_run + i];
      if (x.begin != y.begin || x.end != y.end || !(x.demand == y.demand)) return false;
    }
    return true;
  }

  // An earlier option asks for the same and leaves at least as much freedom.
  bool is_repeated(const Option& option, const Choice& choice) const {
    for (std::uint32_t o = 0; o < choice.options; ++o) {
      const Option& other = flat_.options[choice.first_option + o];
      const bool freer = other.spread == option.spread ||
                         (other.spread == Spread::kFree && option.spread == Spread::kOneHost);
      if (freer && same_shards(other, option)) return true;
    }
    return false;
  }

  const PlanSpace& space_;
  FlatSpace flat_;
};

}  // namespace

Spread spread_of(ShardingType type) {
  switch (type) {
    case ShardingType::kDataParallel:
    case ShardingType::kRowWise: return Spread::kEverywhere;
    case ShardingType::kTableRowWise:
    case ShardingType::kGrid:
    case ShardingType::kHostRowSplit: return Spread::kHostBlocks;
    case ShardingType::kTableColumnWise: return Spread::kOneHost;
    case ShardingType::kTableWise:
    case ShardingType::kColumnWise:
    case ShardingType::kRowSplit: return Spread::kFree;
  }
  return Spread::kFree;
}

Result<void> check_space(const PlanSpace& space) {
  constexpr std::int64_t kMostRanks = 1 << 24;
  if (space.local_world < 1 || space.world < 1 || space.world > kMostRanks ||
      space.world % space.local_world != 0) {
    return impossible("ranks that are a multiple of those of a host",
                      fmt::format("{} of {}", space.world, space.local_world));
  }
  if (space.phases < 1 || space.phases > kMostPhases) {
    return impossible(fmt::format("1 to {} phases", kMostPhases), space.phases);
  }
  for (double floor : space.floors) {
    if (!is_amount(floor)) return impossible("floors from 0", floor);
  }
  if (space.hbm_cap < 0 || space.ddr_cap < 0) {
    return impossible("bytes from 0 per rank", std::min(space.hbm_cap, space.ddr_cap));
  }
  for (const TableChoices& choices : space.choices) {
    for (std::int64_t rank : choices.forbidden_ranks) {
      if (rank < 0 || rank >= space.world) {
        return impossible(fmt::format("forbidden ranks from 0 to {}", space.world - 1), rank);
      }
    }
    for (const PlacementOption& option : choices.options) {
      PERFMODEL_TRY_TO(check_shards(space, option));
    }
  }
  for (std::uint32_t choices : space.choices_of_table) {
    if (choices >= space.choices.size()) {
      return impossible(fmt::format("one of {} lists of choices", space.choices.size()), choices);
    }
  }
  return {};
}

std::uint64_t mix_of(const Layout& layout) {
  std::uint64_t sum = 0;
  for (const std::uint32_t option : layout.option) sum += mix_of(option);
  return sum;
}

Result<FlatSpace> flatten(const PlanSpace& space) {
  PERFMODEL_TRY_TO(check_space(space));
  return Flattening(space).of();
}

}  // namespace perfmodel::sharding::search
