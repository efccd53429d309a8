#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/plan_space.hpp"

namespace perfmodel::sharding {
struct PlacedChoice;
}

/// A plan space as the search reads it: checked, flat, without options that no plan can use.
namespace perfmodel::sharding::search {

inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// SplitMix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }  ///< [0, 1)
  std::uint32_t below(std::size_t count) {
    return static_cast<std::uint32_t>(((next() >> 32U) * count) >> 32U);
  }
  bool chance(double share) { return uniform() < share; }

 private:
  std::uint64_t state_;
};

enum class Spread : std::uint8_t {
  kEverywhere,  ///< shard k on rank k
  kFree,        ///< a rank per shard, all different
  kOneHost,     ///< the same on one host
  kHostBlocks,  ///< a host per L shards, all different
};
Spread spread_of(ShardingType type);

struct Run {
  std::int32_t begin = 0, end = 0;  ///< shards
  ShardDemand demand;
  double load = 0;  ///< over all phases
};

struct Option {
  std::uint32_t index = 0;  ///< in TableChoices::options
  Spread spread = Spread::kFree;
  std::int32_t pieces = 0;  ///< pieces to place: shards or blocks; 0: everywhere
  std::uint32_t first_run = 0, runs = 0;
  PhaseLoads loads{};            ///< sum over all shards
  double load = 0, largest = 0;  ///< over all phases: all shards, one shard
  double least_objective = 0;    ///< no plan with this option has a smaller objective
  std::int64_t hbm = 0, ddr = 0, hbm_max = 0, ddr_max = 0;  ///< all shards; one shard
};

struct Choice {
  std::uint32_t first_option = 0, options = 0;
  std::int32_t most_pieces = 0;
  std::int32_t mask = -1;    ///< into FlatSpace::allowed; -1: all ranks
  std::uint32_t tables = 0;  ///< number of tables that have it
};

struct FlatSpace {
  std::int32_t world = 1, local_world = 1, hosts = 1;
  std::int64_t hbm_cap = 0, ddr_cap = 0;
  std::size_t phases = 1;
  PhaseLoads floors{};
  std::vector<Option> options;
  std::vector<Run> runs;
  std::vector<Choice> choices;
  std::vector<std::uint32_t> choice_of;    ///< per table
  std::vector<std::uint32_t> first_place;  ///< per table: into Layout::where
  std::uint32_t places = 0;                ///< most pieces of all tables
  std::vector<std::vector<char>> allowed;  ///< per mask: ranks
  std::vector<std::vector<char>> allowed_hosts;

  const Run& run_of(const Option& option, std::int32_t shard) const {
    std::uint32_t run = option.first_run;
    while (runs[run].end <= shard) ++run;
    return runs[run];
  }
  bool may_use(const Choice& choice, std::int32_t rank) const {
    return choice.mask < 0 || allowed[choice.mask][rank] != 0;
  }
  bool may_use_host(const Choice& choice, std::int32_t host) const {
    return choice.mask < 0 || allowed_hosts[choice.mask][host] != 0;
  }
};

/// A plan: an option per table (into FlatSpace::options) and a rank or host per piece.
struct Layout {
  std::vector<std::uint32_t> option;
  std::vector<std::int32_t> where;
  double objective = 0;
  std::uint64_t mix = 0;  ///< mix_of() it, in plans that are found
};
/// Equal if two plans choose the same options, for whichever tables: tables that are alike may
/// trade theirs. The sum of a random number per option.
inline std::uint64_t mix_of(std::uint32_t option) { return Random(option + 1).next(); }
std::uint64_t mix_of(const Layout& layout);

/// Errors (kImpossible): counts, loads or bytes that make no sense; a table that fits nowhere.
Result<FlatSpace> flatten(const PlanSpace& space);

/// No plan that fits is better than this; infinity: no plan fits.
///
/// If all ranks together had to bear the loads evenly and share their memory, each table would take
/// the option that costs least at some price of a byte, and any price gives a bound (Lagrange). A
/// plan of objective T has no shard larger than T, so the tables may only take options without
/// larger ones: the bound is the least T that is no smaller than the bound under that limit.
double lower_bound(const FlatSpace& space);

/// evaluate_plan() for a space that was checked.
Result<double> objective_of(const PlanSpace& space, std::span<const PlacedChoice> plan);

/// Checks that do not ask whether anything fits.
Result<void> check_space(const PlanSpace& space);

}  // namespace perfmodel::sharding::search
