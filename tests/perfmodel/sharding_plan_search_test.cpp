// Searches on small problems: against enumeration, with constraints, and what they refuse.
#include "perfmodel/sharding/detail/plan_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sharding/plan_search_ranks.hpp"
#include "sharding/plan_search_seeds.hpp"

namespace perfmodel::sharding {
namespace sharding_plan_search_test {

using ::testing::HasSubstr;
using Type = ShardingType;

PlacementOption option(Type type, std::int64_t shards, double load, std::int64_t bytes = 0) {
  ShardDemand demand;
  demand.loads[0] = load;
  demand.hbm_bytes = bytes;
  return {type, ComputeKernel::kFused, 0, {{shards, demand}}};
}

// A table per load, all table-wise.
PlanSpace whole_tables(std::int64_t world, const std::vector<double>& loads) {
  PlanSpace space;
  space.world = world;
  for (double load : loads) {
    space.choices_of_table.push_back(static_cast<std::uint32_t>(space.choices.size()));
    space.choices.push_back({{option(Type::kTableWise, 1, load)}, {}});
  }
  return space;
}

SearchResult search(const PlanSpace& space, SearchOptions options = {}) {
  auto found = search_plans(space, options);
  EXPECT_TRUE(found) << to_string(found.error());
  return found ? *found : SearchResult{.plans = {{}}};
}

TEST(PlanSearch, BalancesWhatLongestFirstDoesNot) {
  // Longest first puts 3+3+2 on one rank and 3+2 on the other, or the like: 2+2+2 and 3+3 is best.
  const SearchResult found = search(whole_tables(2, {3, 3, 2, 2, 2}));
  EXPECT_DOUBLE_EQ(found.plans.front().objective, 6);
  EXPECT_NEAR(found.lower_bound, 6, 1e-9);
  EXPECT_TRUE(found.proved_best);
  EXPECT_FALSE(found.stopped);
}

TEST(PlanSearch, TakesOptionsThatTheMemoryAllows) {
  // Whole, a table costs 4 and 10 bytes of its rank; on all ranks 3 on each of them and no bytes.
  PlanSpace space;
  space.world = 2;
  space.choices = {{{option(Type::kTableWise, 1, 4, 10), option(Type::kRowWise, 2, 3)}, {}}};
  space.choices_of_table = {0, 0};
  EXPECT_DOUBLE_EQ(search(space).plans.front().objective, 4);
  space.hbm_cap = 9;  // neither can be whole
  EXPECT_DOUBLE_EQ(search(space).plans.front().objective, 6);
}

TEST(PlanSearch, AddsTheLargestLoadOfEachPhaseOrItsFloor) {
  PlanSpace space = whole_tables(2, {5, 4});
  space.phases = 2;
  space.floors = {0, 7};
  space.choices[0].options[0].shards[0].demand.loads = {5, 1};
  space.choices[1].options[0].shards[0].demand.loads = {1, 5};
  // Apart: 5 + max(7, 5); together 6 + max(7, 6).
  EXPECT_DOUBLE_EQ(search(space).plans.front().objective, 12);
  space.floors = {0, 0};
  EXPECT_DOUBLE_EQ(search(space).plans.front().objective, 10);
}

TEST(PlanSearch, IsOfNoTables) {
  PlanSpace space;
  space.floors = {3};
  const SearchResult found = search(space);
  EXPECT_DOUBLE_EQ(found.plans.front().objective, 3);
  EXPECT_TRUE(found.proved_best);
}

// ---- against enumeration
// ----------------------------------------------------------------------

// Tries all plans. evaluate_plan() judges single tables; sums are made here.
class Brute {
 public:
  explicit Brute(const PlanSpace& space)
      : space_(space), ranks_(static_cast<std::size_t>(space.world)) {
    for (std::uint32_t c = 0; c < space.choices.size(); ++c) collect(c);
  }

  double best() {
    best_ = std::numeric_limits<double>::infinity();
    add_table(0);
    return best_;
  }

 private:
  using Demands = std::vector<ShardDemand>;  // per rank

  void collect(std::uint32_t choices) {
    PlanSpace one = space_;
    one.choices_of_table = {choices};
    ways_.emplace_back();
    for (std::uint32_t o = 0; o < one.choices[choices].options.size(); ++o) {
      const PlacementOption& option = one.choices[choices].options[o];
      std::vector<ShardDemand> shards;
      for (const auto& run : option.shards) {
        shards.insert(shards.end(), static_cast<std::size_t>(run.count), run.demand);
      }
      PlacedChoice placed{o, {}};
      put(one, shards, placed);
    }
  }
  void put(const PlanSpace& one, const std::vector<ShardDemand>& shards, PlacedChoice& placed) {
    if (placed.ranks.size() == shards.size()) {
      if (!evaluate_plan(one, std::vector{placed})) return;
      Demands demands(ranks_.size());
      for (std::size_t i = 0; i < shards.size(); ++i) {
        demands[static_cast<std::size_t>(placed.ranks[i])] = shards[i];
      }
      ways_.back().push_back(demands);
      return;
    }
    for (std::int32_t rank = 0; rank < space_.world; ++rank) {
      placed.ranks.push_back(rank);
      put(one, shards, placed);
      placed.ranks.pop_back();
    }
  }

  void add_table(std::size_t table) {
    if (table == space_.choices_of_table.size()) {
      double objective = 0;
      for (std::size_t p = 0; p < space_.phases; ++p) {
        double most = space_.floors[p];
        for (const ShardDemand& rank : ranks_) most = std::max(most, rank.loads[p]);
        objective += most;
      }
      best_ = std::min(best_, objective);
      return;
    }
    for (const Demands& way : ways_[space_.choices_of_table[table]]) {
      const Demands before = ranks_;
      bool fits = true;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        for (std::size_t p = 0; p < space_.phases; ++p) ranks_[r].loads[p] += way[r].loads[p];
        ranks_[r].hbm_bytes += way[r].hbm_bytes;
        fits = fits && ranks_[r].hbm_bytes <= space_.hbm_cap;
      }
      if (fits) add_table(table + 1);
      ranks_ = before;
    }
  }

  const PlanSpace& space_;
  Demands ranks_;
  std::vector<std::vector<Demands>> ways_;  // per choices
  double best_ = 0;
};

class RandomSpace {
 public:
  explicit RandomSpace(unsigned seed) : random_(seed) {}

  PlanSpace make() {
    PlanSpace space;
    space.local_world = 2;
    space.world = 4;
    space.phases = static_cast<std::size_t>(whole(1, 3));
    space.hbm_cap = whole(20, 40);
    for (std::size_t p = 0; p < space.phases; ++p) {
      space.floors[p] = whole(0, 2) == 0 ? real() : 0;
    }
    const int tables = static_cast<int>(whole(2, 3)), kinds = static_cast<int>(whole(1, tables));
    for (int i = 0; i < kinds; ++i) space.choices.push_back(choices(space));
    for (int t = 0; t < tables; ++t) {
      space.choices_of_table.push_back(static_cast<std::uint32_t>(whole(0, kinds - 1)));
    }
    return space;
  }

 private:
  std::int64_t whole(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  double real() { return static_cast<double>(whole(1, 1000)) / 100; }

  TableChoices choices(const PlanSpace& space) {
    const std::vector<std::pair<Type, int>> kinds = {
        {Type::kTableWise, 1},       {Type::kColumnWise, 2},   {Type::kRowSplit, 3},
        {Type::kRowWise, 4},         {Type::kDataParallel, 4}, {Type::kTableRowWise, 2},
        {Type::kTableColumnWise, 2}, {Type::kGrid, 4}};
    TableChoices choices;
    const std::int64_t bytes = whole(4, 24);
    const double load = real();
    for (const auto& [type, shards] : kinds) {
      if (whole(0, 2) == 0 && !(choices.options.empty() && type == Type::kGrid)) continue;
      PlacementOption made{type, ComputeKernel::kFused, 0, {}};
      for (int left = shards; left > 0;) {
        const auto count = whole(1, left);
        ShardDemand demand;
        for (std::size_t p = 0; p < space.phases; ++p) {
          demand.loads[p] = load / shards * (1 + real() / 20);
        }
        demand.hbm_bytes = type == Type::kDataParallel ? bytes : bytes / shards + whole(0, 2);
        made.shards.push_back({count, demand});
        left -= static_cast<int>(count);
      }
      choices.options.push_back(made);
    }
    if (whole(0, 3) == 0) choices.forbidden_ranks = {whole(0, space.world - 1)};
    return choices;
  }

  std::mt19937 random_;
};

#ifdef PERFMODEL_SANITIZED
constexpr int kSpaces = 60;
#else
constexpr int kSpaces = 200;
#endif

TEST(PlanSearch, FindsWhatEnumerationFinds) {
  int solvable = 0, impossible = 0, found_without = 0;
  for (unsigned seed = 0; seed < kSpaces; ++seed) {
    SCOPED_TRACE(seed);
    const PlanSpace space = RandomSpace(seed).make();
    const double best = Brute(space).best();
    const auto exact = search_plans(space, {.move_budget = 600});
    const auto local = search_plans(space, {.move_budget = 60'000, .exact_nodes = 0});
    if (best == std::numeric_limits<double>::infinity()) {
      ++impossible;
      EXPECT_FALSE(exact);
      EXPECT_FALSE(local);
      continue;
    }
    ++solvable;
    ASSERT_TRUE(exact) << to_string(exact.error());
    EXPECT_NEAR(exact->plans.front().objective, best, 1e-9 * best);
    EXPECT_TRUE(exact->proved_best);
    if (!local) continue;
    EXPECT_LE(local->lower_bound, best * (1 + 1e-9));
    EXPECT_GE(local->plans.front().objective, best * (1 - 1e-9));
    found_without += local->plans.front().objective <= best * (1 + 1e-9) ? 1 : 0;
  }
  EXPECT_GT(solvable, kSpaces * 3 / 4);
#ifndef PERFMODEL_SANITIZED  // few are
  EXPECT_GT(impossible, 0);
#endif
  EXPECT_GE(found_without, solvable * 99 / 100);
}

// ---- larger ones
// ---------------------------------------------------------------------------------

PlanSpace many_tables(std::size_t tables, std::int64_t hosts, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(0.1, 1);
  PlanSpace space;
  space.local_world = 4;
  space.world = 4 * hosts;
  space.hbm_cap = static_cast<std::int64_t>(tables * 100 / static_cast<std::size_t>(hosts) / 5);
  for (std::size_t t = 0; t < tables; ++t) {
    const double load = real(random);
    const auto bytes = static_cast<std::int64_t>(100 * real(random));
    TableChoices choices;
    choices.options = {option(Type::kTableWise, 1, load, bytes),
                       option(Type::kColumnWise, 2, load * 0.6, bytes / 2 + 1),
                       option(Type::kTableColumnWise, 2, load * 0.55, bytes / 2 + 1),
                       option(Type::kTableRowWise, 4, load * 0.3, bytes / 4 + 1),
                       option(Type::kDataParallel, space.world, load * 0.1, bytes)};
    if (t % 5 == 0) choices.forbidden_ranks = {0, 3};
    space.choices_of_table.push_back(static_cast<std::uint32_t>(t));
    space.choices.push_back(choices);
  }
  return space;
}

TEST(PlanSearch, IsTheSameForTheSameSeed) {
  const PlanSpace space = many_tables(40, 3, 7);
  const SearchOptions options{.move_budget = 20'000, .seed = 3};
  const SearchResult a = search(space, options), b = search(space, options);
  ASSERT_EQ(a.plans.size(), 1U);
  EXPECT_EQ(a.plans.front().objective, b.plans.front().objective);
  EXPECT_EQ(a.moves, b.moves);
  for (std::size_t t = 0; t < space.choices_of_table.size(); ++t) {
    EXPECT_EQ(a.plans.front().tables[t].option, b.plans.front().tables[t].option);
    EXPECT_EQ(a.plans.front().tables[t].ranks, b.plans.front().tables[t].ranks);
  }
  EXPECT_GE(a.plans.front().objective, a.lower_bound);
  EXPECT_LE(a.plans.front().objective, 1.1 * a.lower_bound);
}

struct PackedSlowly {
  std::vector<std::int32_t> where;
  double largest = 0;  // load
};
// The ranks of each piece if one looks at all ranks for the lightest that has room.
PackedSlowly packed_slowly(const search::FlatSpace& space,
                           const std::vector<std::uint32_t>& order) {
  std::vector<double> loads(space.world);
  std::vector<std::int64_t> bytes(space.world);
  std::vector<std::int32_t> where(space.places);
  for (const std::uint32_t table : order) {
    const search::Choice& choice = space.choices[space.choice_of[table]];
    const search::Option& option = space.options[choice.first_option];
    std::vector<char> used(space.world, 0);
    for (std::int32_t rank = 0; option.pieces == 0 && rank < space.world; ++rank) {
      loads[rank] += space.run_of(option, rank).load;
    }
    for (std::int32_t piece = 0; piece < option.pieces; ++piece) {
      const search::Run& run = space.run_of(option, piece);
      std::int32_t best = -1;
      for (std::int32_t rank = 0; rank < space.world; ++rank) {
        const bool room = bytes[rank] + run.demand.hbm_bytes <= space.hbm_cap;
        if (used[rank] != 0 || !room || !space.may_use(choice, rank)) continue;
        if (best < 0 || loads[rank] < loads[best]) best = rank;
      }
      loads[best] += run.load;
      bytes[best] += run.demand.hbm_bytes;
      used[best] = 1;
      where[space.first_place[table] + static_cast<std::uint32_t>(piece)] = best;
    }
  }
  return {std::move(where), *std::ranges::max_element(loads)};
}

TEST(PlanSearch, PacksOnTheLightestOfManyRanks) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    PlanSpace space;
    space.world = 33 + seed;
    space.hbm_cap = 70;
    for (std::uint32_t t = 0; t < 200; ++t) {
      const auto pieces = static_cast<std::int64_t>(random() % 4) + 1;
      const double load = static_cast<double>(random() % 7);  // some are alike
      const auto type = pieces == 1 ? Type::kTableWise : Type::kColumnWise;
      TableChoices choices{{option(type, pieces, load, static_cast<std::int64_t>(random() % 8))},
                           {}};
      if (t % 3 == 0) choices.forbidden_ranks = {static_cast<std::int64_t>(random() % 33), 5};
      if (t % 25 == 7) {  // on every rank; some of them with other loads on the last ranks
        choices = {{option(Type::kDataParallel, space.world, 0.1 * load)}, {}};
        auto& runs = choices.options.front().shards;
        if (seed % 2 == 0 && t % 50 == 32) {
          runs.front().count -= 9;
          runs.push_back(option(Type::kDataParallel, 9, 0.3 * load).shards.front());
        }
      }
      space.choices.push_back(choices);
      space.choices_of_table.push_back(t);
    }
    const search::FlatSpace flat = search::flatten(space).value();
    search::Layout layout;
    std::vector<std::uint32_t> order(200);
    std::iota(order.begin(), order.end(), 0U);
    for (const std::uint32_t t : order) layout.option.push_back(flat.choices[t].first_option);
    ASSERT_TRUE(search::Packing(flat).pack(layout, search::Packing::Order::kLongestFirst));
    std::ranges::stable_sort(order, std::greater<>(), [&](std::uint32_t t) {
      const search::Option& option = flat.options[layout.option[t]];
      return option.pieces == 0 ? std::numeric_limits<double>::max() : option.largest;
    });
    const PackedSlowly slowly = packed_slowly(flat, order);
    EXPECT_EQ(layout.where, slowly.where);
    EXPECT_EQ(layout.objective, slowly.largest);
  }
}

TEST(PlanSearch, PowersAndRootsOfLoadsAreThoseOfEach) {
  const std::array<double, 3> ratios = {0.97, 1, 1.2};
  const auto powers = search::powers_of(search::ByPhase<3>::of(ratios), 7);
  const auto roots = search::roots_of(std::array{powers[0], powers[1], powers[2]}, 7);
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    EXPECT_NEAR(powers[i], std::pow(ratios[i], 128), 1e-12 * powers[i]);
    EXPECT_NEAR(roots[i], ratios[i], 1e-12);
  }
  EXPECT_EQ(search::powers_of(search::ByPhase<1>::of(std::array{1e3}), 1)[0], 64);  // at most 8
}

TEST(PlanSearch, TablesMayTradeTheirOptionsInAMix) {
  search::Layout a, b, c;
  a.option = {4, 9, 9};
  b.option = {9, 4, 9};
  c.option = {4, 4, 9};
  EXPECT_EQ(search::mix_of(a), search::mix_of(b));
  EXPECT_NE(search::mix_of(a), search::mix_of(c));
}

// Loads of each rank, phase by phase.
std::vector<PhaseLoads> rank_loads(const PlanSpace& space, const std::vector<PlacedChoice>& plan) {
  std::vector<PhaseLoads> loads(space.world, PhaseLoads{});
  for (std::size_t t = 0; t < plan.size(); ++t) {
    const auto& options = space.choices[space.choices_of_table[t]].options;
    std::size_t shard = 0;
    for (const auto& run : options[plan[t].option].shards) {
      for (std::int64_t i = 0; i < run.count; ++i, ++shard) {
        PhaseLoads& rank = loads[plan[t].ranks.empty() ? shard : plan[t].ranks[shard]];
        for (std::size_t p = 0; p < space.phases; ++p) rank[p] += run.demand.loads[p];
      }
    }
  }
  return loads;
}

TEST(PlanSearch, PlansAreWhatRanksBear) {
  for (std::size_t phases : {1U, 2U, 5U}) {
    PlanSpace space = many_tables(30, 4, 11);
    space.phases = phases;
    for (TableChoices& choices : space.choices) {
      for (PlacementOption& one : choices.options) {
        auto& loads = one.shards.front().demand.loads;
        for (std::size_t p = 1; p < phases; ++p) loads[p] = loads[p - 1] * 0.7 + 0.01;
      }
    }
    const FoundPlan plan = search(space, {.move_budget = 5000}).plans.front();
    const auto loads = rank_loads(space, plan.tables);
    ASSERT_EQ(loads.size(), 16U);
    double sum = 0;
    for (std::size_t p = 0; p < phases; ++p) {
      double most = 0;
      for (const PhaseLoads& rank : loads) most = std::max(most, rank[p]);
      sum += most;
    }
    EXPECT_DOUBLE_EQ(sum, plan.objective);
    EXPECT_DOUBLE_EQ(evaluate_plan(space, plan.tables).value(), plan.objective);
  }
}

TEST(PlanSearch, HandsBackSeveralPlansOfDifferentOptions) {
  const PlanSpace space = many_tables(12, 2, 5);
  const SearchResult found = search(space, {.move_budget = 20'000, .keep = 4});
  ASSERT_EQ(found.plans.size(), 4U);
  const auto options_of = [](const FoundPlan& plan) {
    std::vector<std::uint32_t> options;
    for (const PlacedChoice& placed : plan.tables) options.push_back(placed.option);
    return options;
  };
  for (std::size_t i = 0; i + 1 < found.plans.size(); ++i) {
    EXPECT_LE(found.plans[i].objective, found.plans[i + 1].objective);
    for (std::size_t j = i + 1; j < found.plans.size(); ++j) {
      EXPECT_NE(options_of(found.plans[i]), options_of(found.plans[j]));
    }
  }
  const SearchResult best = search(space, {.move_budget = 20'000});
  EXPECT_NEAR(found.plans.front().objective, best.plans.front().objective,
              0.05 * best.plans.front().objective);
}

TEST(PlanSearch, StopsWhenItIsTold) {
  const PlanSpace space = many_tables(60, 4, 9);
  int calls = 0;
  SearchProgress last;
  const SearchResult stopped = search(space, {.time_budget_s = 60,
                                              .move_budget = 1'000'000'000,
                                              .progress = [&](const SearchProgress& progress) {
                                                last = progress;
                                                return ++calls < 2;
                                              }});
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_LT(stopped.seconds, 10);
  EXPECT_GT(last.moves, 0U);
  EXPECT_GE(last.best, stopped.lower_bound);
  EXPECT_NEAR(last.lower_bound, stopped.lower_bound, 1e-12);
  const SearchResult late = search(space, {.time_budget_s = 0.05, .move_budget = 1'000'000'000});
  EXPECT_TRUE(late.stopped);
  EXPECT_LT(late.seconds, 5);
  EXPECT_TRUE(evaluate_plan(space, late.plans.front().tables));
}

// Work that is not the search's, here in its thread, leaves the moves and the plan as they are.
TEST(PlanSearch, CountsWhatItTriesAndNotTheClock) {
  const PlanSpace space = many_tables(60, 4, 9);
  const SearchOptions options = {.time_budget_s = 0.6, .move_budget = 1'000'000'000};
  SearchOptions slower = options;
  bool waited = false;
  slower.progress = [&](const SearchProgress&) {
    const std::clock_t end = std::clock() + (waited ? 0 : CLOCKS_PER_SEC / 2);
    while (std::clock() < end) {
    }
    return waited = true;
  };
  const SearchResult found = search(space, options), late = search(space, slower);
  EXPECT_TRUE(found.stopped);
  EXPECT_TRUE(late.stopped);
  EXPECT_EQ(found.moves, late.moves);
  EXPECT_NEAR(found.counted_s, 0.6, 1e-3);
  EXPECT_EQ(found.plans.front().objective, late.plans.front().objective);
}

TEST(PlanSearch, FitsTablesThatFillAllRanks) {
  // 6 + 4, 5 + 5, 7 + 3: longest or largest first by load leaves 4 bytes without a place.
  PlanSpace space;
  space.world = 3;
  space.hbm_cap = 10;
  const std::vector<std::pair<double, std::int64_t>> tables = {{1, 5}, {2, 4}, {6, 3},
                                                               {3, 5}, {4, 6}, {5, 7}};
  for (const auto& [load, bytes] : tables) {
    space.choices_of_table.push_back(static_cast<std::uint32_t>(space.choices.size()));
    space.choices.push_back({{option(Type::kTableWise, 1, load, bytes)}, {}});
  }
  const SearchResult found = search(space);
  EXPECT_DOUBLE_EQ(found.plans.front().objective, 11);  // 5 + 6 lie together
  EXPECT_TRUE(found.proved_best);
}

// ---- refusals
// ------------------------------------------------------------------------------------

std::string search_message(const PlanSpace& space, const SearchOptions& options = {}) {
  const auto found = search_plans(space, options);
  return found ? "found" : found.error().message;
}

TEST(PlanSearch, SaysWhatIsShort) {
  PlanSpace space;
  space.world = 2;
  space.hbm_cap = 10;
  space.choices = {{{option(Type::kTableWise, 1, 1, 8)}, {}},
                   {{option(Type::kTableWise, 1, 1, 30), option(Type::kColumnWise, 2, 1, 12)}, {}}};
  space.choices_of_table = {0, 0};
  EXPECT_EQ(search_message(space), "found");
  space.choices_of_table = {0, 0, 0};
  EXPECT_EQ(search_message(space),
            "expected tables that fit, found more than all ranks hold: they take at least 24 bytes "
            "of 20 of HBM and 0 of 9223372036854775807 of host memory");
  Shortfall lack = find_shortfall(space);
  EXPECT_EQ(lack.least_hbm_bytes, 24);
  EXPECT_EQ(lack.hbm_bytes, 20);
  EXPECT_TRUE(lack.tables.empty());
  space.choices_of_table = {0, 1};
  EXPECT_EQ(search_message(space),
            "table 1: expected shards of at most 10 bytes of HBM and 9223372036854775807 of host "
            "memory, found at least 12 and 0");
  lack = find_shortfall(space);
  ASSERT_EQ(lack.tables.size(), 1U);
  EXPECT_EQ(lack.tables[0].table, 1U);
  EXPECT_EQ(lack.tables[0].shard_hbm_bytes, 12);
  space.world = 3;  // three of 6 bytes, two to a rank at most: enough in all, not in each
  space.choices = {{{option(Type::kTableWise, 1, 1, 6)}, {}}};
  space.choices_of_table = {0, 0, 0, 0};
  EXPECT_THAT(search_message(space), HasSubstr("found no plan in which they do: they take at least "
                                               "24 bytes of 30"));
}

TEST(PlanSearch, RefusesSpacesThatContradictThemselves) {
  const PlanSpace good = whole_tables(4, {1, 2});
  const auto message = [&](auto change) {
    PlanSpace space = good;
    change(space);
    return search_message(space);
  };
  EXPECT_EQ(message([](PlanSpace&) {}), "found");
  EXPECT_THAT(message([](PlanSpace& s) { s.local_world = 3; }), HasSubstr("found 4 of 3"));
  EXPECT_THAT(message([](PlanSpace& s) { s.phases = 7; }), HasSubstr("1 to 6 phases"));
  EXPECT_THAT(message([](PlanSpace& s) { s.floors[0] = -1; }), HasSubstr("floors from 0"));
  EXPECT_THAT(message([](PlanSpace& s) { s.choices_of_table[0] = 2; }),
              HasSubstr("one of 2 lists of choices, found 2"));
  EXPECT_EQ(message([](PlanSpace& s) { s.choices[0].options.clear(); }),
            "table 0: expected ways to place it, found none");
  EXPECT_THAT(message([](PlanSpace& s) { s.choices[0].forbidden_ranks = {4}; }),
              HasSubstr("forbidden ranks from 0 to 3, found 4"));
  EXPECT_THAT(message([](PlanSpace& s) {
                s.choices[1].forbidden_ranks = {0, 1, 2, 3};
              }),
              HasSubstr("table 1: expected a way to place it on 4 ranks without 4 forbidden"));
  EXPECT_THAT(message([](PlanSpace& s) { s.choices[0].options[0].type = Type::kRowWise; }),
              HasSubstr("as many row_wise shards as 4 ranks"));
  EXPECT_THAT(message([](PlanSpace& s) {
                s.choices[0].options[0].shards[0].demand.loads[0] =
                    std::numeric_limits<double>::quiet_NaN();
              }),
              HasSubstr("loads from 0"));
  EXPECT_THAT(search_message(good, {.time_budget_s = 0}), HasSubstr("a time budget above 0 s"));
}

TEST(PlanSearch, EvaluationRefusesPlansThatAreNotAllowed) {
  PlanSpace space;
  space.world = 4;
  space.local_world = 2;
  space.hbm_cap = 10;
  space.choices = {{{option(Type::kColumnWise, 2, 1, 4), option(Type::kTableColumnWise, 2, 1, 4),
                     option(Type::kTableRowWise, 2, 1, 4), option(Type::kRowWise, 4, 1, 4),
                     option(Type::kTableWise, 1, 1, 9)},
                    {3}}};
  space.choices_of_table = {0, 0};
  const auto message = [&](PlacedChoice first, PlacedChoice second = {0, {0, 1}}) {
    const auto value = evaluate_plan(space, std::vector{first, second});
    return value ? "allowed" : value.error().message;
  };
  EXPECT_EQ(message({0, {0, 2}}), "allowed");
  EXPECT_EQ(message({1, {1, 0}}), "allowed");
  EXPECT_EQ(message({2, {0, 1}}), "allowed");
  EXPECT_EQ(message({0, {0}}), "table 0: expected a rank per shard, 2 in all, found 1");
  EXPECT_EQ(message({0, {0, 0}}),
            "table 0: expected a rank of its own for each shard, found 0 twice");
  EXPECT_EQ(message({0, {0, 4}}), "table 0: expected ranks from 0 to 3, found 4");
  EXPECT_EQ(message({0, {0, 3}}), "table 0: expected no forbidden rank, found 3");
  EXPECT_EQ(message({3, {}}), "table 0: expected no forbidden rank, found 3");
  EXPECT_EQ(message({1, {1, 2}}),
            "table 0: expected ranks that table_column_wise allows, found shard 1 on rank 2");
  EXPECT_EQ(message({2, {1, 0}}),
            "table 0: expected ranks that table_row_wise allows, found shard 0 on rank 1");
  EXPECT_EQ(message({5, {0}}), "table 0: expected one of 5 options, found 5");
  EXPECT_EQ(
      message({4, {1}}),
      "rank 1: expected at most 10 bytes of HBM and 9223372036854775807 of host memory, found "
      "13 and 0");
  EXPECT_EQ(evaluate_plan(space, {}).error().message, "expected places of 2 tables, found 0");
}

}  // namespace sharding_plan_search_test
}  // namespace perfmodel::sharding
