// Plans under TorchRec's costs: options of the space, loads that equal its ratings, and a search
// that is not worse than TorchRec's planner.
#include "sharding/torchrec_space.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "sharding_cases.hpp"

namespace perfmodel::sharding {
namespace sharding_torchrec_space_test {

using ::testing::HasSubstr;
using Type = ShardingType;
using Json = nlohmann::json;

constexpr std::int64_t kPlenty = std::int64_t{1} << 40;

// Every table once per shard, nothing over the cap, and the objective is the rating.
double checked_rating(std::span<const ShardedTable> tables, const TorchrecTopology& topology,
                      const TorchrecSettings& settings, const TableSpace& space,
                      const FoundPlan& plan) {
  const auto placements = placements_of(space, plan);
  const auto rating = rate_plan(tables, placements, topology, settings);
  EXPECT_TRUE(rating) << to_string(rating.error());
  if (!rating) return 0;
  EXPECT_NEAR(rating->rating_ms(), plan.objective, 1e-12 * plan.objective);
  EXPECT_LE(rating->largest_hbm(), space.space.hbm_cap);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::set<std::int64_t> different(placements[t].ranks.begin(), placements[t].ranks.end());
    EXPECT_EQ(different.size(), placements[t].ranks.size()) << tables[t].name;
  }
  return rating->rating_ms();
}

TEST(TorchrecSpace, PlansAreNoWorseThanThoseOfItsPlanner) {
  const Json all = public_json("torchrec_plan_cases.json"), models = public_json("models.json");
  if (all.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  fmt::print("case   TorchRec [ms]  simple [ms]  found [ms]  bound [ms]  gap [%]  [s]\n");
  for (const Json& one : all["cases"]) {
    const auto id = one["id"].get<std::string>();
#ifdef PERFMODEL_SANITIZED
    if (id > "P03") continue;
#endif
    SCOPED_TRACE(id);
    auto tables = tables_of_case(one, models);
    for (ShardedTable& table : tables) {
      table.rules.kernels = {ComputeKernel::kDense};
      for (const Json& name : one["kernels"]) {
        table.rules.kernels.push_back(compute_kernel(name.get<std::string>()).value());
      }
      if (one["types"].is_null()) continue;
      for (const Json& name : one["types"]) {
        table.rules.types.push_back(sharding_type(name.get<std::string>()).value());
      }
    }
    const auto topology =
        topology_of(all["meta"]["topologies"][one["topology"].get<std::string>()]);
    const TorchrecSettings settings{.batch = one["batch_size_per_rank"]};
    const auto usable = usable_hbm(tables, topology, settings);
    ASSERT_TRUE(usable);
    const auto space = make_torchrec_space(tables, topology, settings, {.hbm_cap = *usable});
    ASSERT_TRUE(space) << to_string(space.error());
    const auto found = search_plans(space->space, {.time_budget_s = 60, .move_budget = 1'500'000});
    ASSERT_TRUE(found) << to_string(found.error());
    const double mine = checked_rating(tables, topology, settings, *space, found->plans.front());
    const double theirs = one["best_rating_ms"];
    EXPECT_LE(mine, theirs * (1 + 1e-9));
    EXPECT_LE(found->lower_bound, mine);
    double simple = 0;
    if (one.contains("simple_search")) {
      simple = one["simple_search"]["best_found_ms"];
      EXPECT_LE(mine, simple * (1 + 1e-9));
    }
    fmt::print("{:5} {:14.4f} {:12.4f} {:11.4f} {:11.4f} {:8.2f} {:4.2f}\n", id, theirs, simple,
               mine, found->lower_bound, 100 * (mine / found->lower_bound - 1), found->seconds);
  }
}

TEST(TorchrecSpace, ThousandTablesAreBetterPlacedThanInMinutes) {
  const Json all = public_json("torchrec_plan_cases.json");
  if (all.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::ifstream file(std::filesystem::path(std::getenv("PERFMODEL_PUBLIC_DATA")) /
                     "sharding/torchrec_timing_tables.csv");
  std::vector<ShardedTable> tables;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    ShardedTable table{.name = "", .element_bytes = 2};
    std::istringstream(line) >> table.name >> table.rows >> table.dim >>
        table.features[0].pooling_factor;
    tables.push_back(table);
  }
  ASSERT_EQ(tables.size(), 1000U);
  const auto topology = topology_of(all["meta"]["topologies"]["h100_16x8"]);
  const auto usable = usable_hbm(tables, topology, {});
  const auto space = make_torchrec_space(tables, topology, {}, {.hbm_cap = usable.value()});
  ASSERT_TRUE(space);
  const auto found = search_plans(space->space, {.time_budget_s = 60, .move_budget = 300'000});
  ASSERT_TRUE(found);
  const double mine = checked_rating(tables, topology, {}, *space, found->plans.front());
  EXPECT_LE(mine, 20.393678957422814);  // after 135 s
  EXPECT_LE(mine, 1.02 * found->lower_bound);
}

TableSpace make(const std::vector<ShardedTable>& tables,
                const TorchrecSpaceOptions& options = {.hbm_cap = kPlenty}) {
  const TorchrecTopology topology{.world = 4, .local_world = 2};
  auto space = make_torchrec_space(tables, topology, {}, options);
  EXPECT_TRUE(space) << to_string(space.error());
  return space ? *space : TableSpace{};
}

std::vector<Type> types_in(const TableChoices& choices) {
  std::vector<Type> types;
  for (const PlacementOption& option : choices.options) types.push_back(option.type);
  return types;
}

TEST(TorchrecSpace, OffersWhatRulesAllow) {
  ShardedTable plain{.name = "plain", .rows = 1000, .dim = 256}, ruled = plain;
  ruled.rules = {.types = {Type::kTableWise, Type::kGrid, Type::kDataParallel},
                 .kernels = {ComputeKernel::kFused, ComputeKernel::kFusedUvm},
                 .keep_with = "",
                 .forbidden_ranks = {1}};
  ShardedTable same = plain;
  same.name = "other name";
  const TableSpace made = make({plain, ruled, same});
  EXPECT_EQ(made.space.choices_of_table, (std::vector<std::uint32_t>{0, 1, 0}));
  EXPECT_EQ(types_in(made.space.choices[0]),
            (std::vector{Type::kDataParallel, Type::kTableWise, Type::kColumnWise, Type::kRowWise,
                         Type::kTableRowWise, Type::kTableColumnWise}));
  EXPECT_EQ(made.space.choices[0].options[0].kernel, ComputeKernel::kDense);
  EXPECT_EQ(made.space.choices[0].options[1].kernel, ComputeKernel::kFused);
  // Data-parallel tables need the dense kernel, which is not named.
  EXPECT_EQ(types_in(made.space.choices[1]),
            (std::vector{Type::kTableWise, Type::kTableWise, Type::kGrid, Type::kGrid}));
  EXPECT_EQ(made.space.choices[1].options[1].kernel, ComputeKernel::kFusedUvm);
  EXPECT_EQ(made.space.choices[1].forbidden_ranks, std::vector<std::int64_t>{1});
}

TEST(TorchrecSpace, LeavesOutWhatNeverFits) {
  // 1,024,000 bytes of rows, a quarter of that per rank if cut by rows; buffers come on top.
  const ShardedTable table{.name = "t",
                           .rows = 1000,
                           .dim = 256,
                           .optimizer = TableOptimizer::kSgd,
                           .features = {{.pooling_factor = 0.01}}};
  const auto types = types_in(make({table}, {.hbm_cap = 3'000'000}).space.choices[0]);
  EXPECT_THAT(types, ::testing::Not(::testing::Contains(Type::kTableWise)));
  EXPECT_THAT(types, ::testing::Contains(Type::kRowWise));
  // If nothing fits, all options stay: the search says by how much.
  const TableSpace hopeless = make({table}, {.hbm_cap = 1000});
  EXPECT_EQ(hopeless.space.choices[0].options.size(), 6U);
  EXPECT_THAT(search_plans(hopeless.space, {}).error().message,
              HasSubstr("table 0: expected shards of at most 1000 bytes of HBM"));
  ASSERT_EQ(find_shortfall(hopeless.space).tables.size(), 1U);
}

TEST(TorchrecSpace, KeepsTablesTogether) {
  std::vector<ShardedTable> tables(5, {.name = "t", .rows = 100'000, .dim = 64});
  tables[1].rules.keep_with = tables[3].rules.keep_with = "pair";
  tables[3].rules.forbidden_ranks = {0, 1};
  tables[1].rules.forbidden_ranks = {2};
  const TableSpace space = make(tables);
  EXPECT_EQ(space.tables, (std::vector<std::vector<std::uint32_t>>{{0}, {1, 3}, {2}, {4}}));
  const auto found = search_plans(space.space, {.move_budget = 20'000});
  ASSERT_TRUE(found);
  const auto placements = placements_of(space, found->plans.front());
  EXPECT_EQ(placements[1], placements[3]);
  EXPECT_EQ(placements[1].type, Type::kTableWise);
  EXPECT_EQ(placements[1].ranks, std::vector<std::int64_t>{3});
  checked_rating(tables, {.world = 4, .local_world = 2}, {}, space, found->plans.front());
}

TEST(TorchrecSpace, OtherWidthsOfColumnsAreRatedAsTheyAreCut) {
  std::vector<ShardedTable> tables(
      1, {.name = "t", .rows = 1000, .dim = 512, .features = {{.pooling_factor = 50}}});
  tables[0].rules.types = {Type::kColumnWise};
  const TorchrecTopology topology{.world = 8, .local_world = 8};
  const auto narrow =
      make_torchrec_space(tables, topology, {}, {.hbm_cap = kPlenty, .least_columns = {64, 256}});
  ASSERT_TRUE(narrow);
  ASSERT_EQ(narrow->space.choices[0].options.size(), 3U);  // 4 x 128, 8 x 64, 2 x 256
  EXPECT_EQ(narrow->space.choices[0].options[1].shards[0].count, 8);
  for (std::uint32_t o = 0; o < 3; ++o) {
    FoundPlan plan{{{o, {}}}, 0};
    const std::int64_t shards = narrow->space.choices[0].options[o].shards[0].count;
    for (std::int32_t i = 0; i < shards; ++i) plan.tables[0].ranks.push_back(i);
    plan.objective = evaluate_plan(narrow->space, plan.tables).value();
    checked_rating(tables, topology, {}, *narrow, plan);
  }
}

TEST(TorchrecSpace, RefusesRulesThatAllowNothing) {
  const TorchrecTopology topology{.world = 4, .local_world = 2};
  const auto message = [&](PlacementRules rules, std::int64_t cap = kPlenty) {
    const std::vector<ShardedTable> tables = {{.name = "t", .rules = rules},
                                              {.name = "u", .rules = {.keep_with = "pair"}}};
    const auto space = make_torchrec_space(tables, topology, {}, {.hbm_cap = cap});
    return space ? "made" : space.error().message;
  };
  EXPECT_EQ(message({}), "made");
  EXPECT_EQ(message({.types = {Type::kDataParallel}, .kernels = {ComputeKernel::kFused}}),
            "table t: expected types and kernels that go together (dense: data_parallel, others: "
            "all other types), found none");
  EXPECT_EQ(message({.types = {Type::kRowWise}, .keep_with = "pair"}),
            "table t: expected table_wise among its types, as it is kept with others (pair), found "
            "it missing");
  EXPECT_EQ(message({.kernels = {ComputeKernel::kFusedUvm}, .keep_with = "pair"}),
            "tables kept together (pair): expected a kernel that all of them may have, found none");
  EXPECT_EQ(message({}, 0), "expected memory for tables, found 0 bytes");
  EXPECT_THAT(message({.types = {Type::kRowSplit}}),
              HasSubstr("a type that TorchRec's planner knows, found row_split"));
}

}  // namespace sharding_torchrec_space_test
}  // namespace perfmodel::sharding
