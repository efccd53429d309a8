// Plans that TorchRec's planner chose, rated: the load and the memory of every rank are its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perfmodel/sharding/detail/torchrec_plan.hpp"
#include "sharding_cases.hpp"

namespace perfmodel::sharding {
namespace sharding_torchrec_plan_test {

TEST(TorchrecPlan, RatingsAreThoseOfItsPlanner) {
  const Json all = public_json("torchrec_plan_cases.json"), models = public_json("models.json");
  if (all.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::size_t cases = 0;
  for (const Json& one : all["cases"]) {
    SCOPED_TRACE(one["id"].get<std::string>());
    const auto tables = tables_of_case(one, models);
    const std::vector<TablePlacement> placements = placements_of_case(one, tables);
    const auto topology =
        topology_of(all["meta"]["topologies"][one["topology"].get<std::string>()]);
    const TorchrecSettings settings{.batch = one["batch_size_per_rank"]};
    const auto rating = rate_plan(tables, placements, topology, settings);
    ASSERT_TRUE(rating) << to_string(rating.error());
    const auto near = [](double value, const Json& expected) {
      EXPECT_NEAR(value, expected.get<double>(), 1e-9 * expected.get<double>());
    };
    near(rating->rating_ms(), one["best_rating_ms"]);
    near(rating->mean_ms(), one["mean_load_ms"]);
    EXPECT_EQ(rating->largest_hbm(), one["max_hbm"].get<std::int64_t>());
    // Given per rank for up to 16 of them.
    const Json loads = one.value("load_ms", Json::array());
    for (std::size_t r = 0; r < loads.size(); ++r) {  // printed with nine decimals
      EXPECT_NEAR(rating->ranks[r].total_ms(), loads[r].get<double>(), 1e-9) << r;
      EXPECT_EQ(rating->ranks[r].hbm_bytes, one["hbm_bytes"][r].get<std::int64_t>()) << r;
    }
    // Its plans fit into what it leaves for tables.
    ASSERT_EQ(one["reservation"]["kind"], "heuristic");
    const auto usable =
        usable_hbm(tables, topology, settings, one["reservation"]["percentage"].get<double>());
    ASSERT_TRUE(usable) << to_string(usable.error());
    EXPECT_LE(rating->largest_hbm(), *usable);
    ++cases;
  }
  EXPECT_EQ(cases, 12U);
}

class SmallPlan : public ::testing::Test {
 protected:
  std::string message(const TablePlacement& placement) const {
    const std::vector<ShardedTable> tables = {{.name = "t", .rows = 100, .dim = 256}};
    const auto rating = rate_plan(tables, std::vector{placement}, topology_, {});
    return rating ? "rated" : rating.error().message;
  }
  const TorchrecTopology topology_{.world = 4, .local_world = 2};
};

TEST_F(SmallPlan, NamesWhatIsWrongWithAPlacement) {
  using Type = ShardingType;
  EXPECT_EQ(message({.type = Type::kTableWise, .ranks = {3}}), "rated");
  EXPECT_EQ(message({.type = Type::kRowWise}), "rated");
  EXPECT_EQ(message({.type = Type::kTableRowWise, .ranks = {2, 3}}), "rated");
  EXPECT_EQ(message({.type = Type::kTableWise}),
            "table t: expected a rank per shard, 1 in all, found 0");
  EXPECT_EQ(message({.type = Type::kColumnWise, .ranks = {0, 1, 2}}),
            "table t: expected a rank per shard, 2 in all, found 3");
  EXPECT_EQ(message({.type = Type::kTableWise, .ranks = {4}}),
            "table t: expected ranks from 0 to 3, found 4");
  EXPECT_EQ(message({.type = Type::kRowWise, .ranks = {0, 1, 2, 2}}),
            "table t: expected a rank of its own for every shard, found 3 ranks for 4 shards");
  EXPECT_EQ(message({.type = Type::kTableRowWise, .ranks = {1, 2}}),
            "table t: expected each block of rows on a rank of its own on one host, found ranks 1, "
            "2");
  EXPECT_EQ(message({.type = Type::kTableRowWise, .ranks = {1, 1}}),
            "table t: expected each block of rows on a rank of its own on one host, found ranks 1, "
            "1");
  const std::vector<ShardedTable> tables(2);
  EXPECT_EQ(rate_plan(tables, {}, topology_, {}).error().message,
            "expected placements of 2 tables, found 0");
}

TEST_F(SmallPlan, PlacementsMayHaveAWidthOfTheirOwn) {
  EXPECT_EQ(
      message({.type = ShardingType::kColumnWise, .ranks = {0, 1, 2, 3}, .least_columns = 64}),
      "rated");
  EXPECT_EQ(message({.type = ShardingType::kColumnWise, .ranks = {0, 1}, .least_columns = 64}),
            "table t: expected a rank per shard, 4 in all, found 2");
}

TEST(UsableHbm, IsWhatIsLeftOrSaysThatNothingIs) {
  const std::vector<ShardedTable> tables = {
      {.name = "t", .features = {{.pooling_factor = 2.5}, {.pooling_factor = 1}}}};
  TorchrecTopology topology{.hbm_cap = 1'000'000};
  const TorchrecSettings settings{.batch = 100};
  // 8 bytes x 350 ids x 20 batches; six copies of 1,000 bytes.
  EXPECT_EQ(usable_hbm(tables, topology, settings, 0.1, 1000).value(),
            900'000 - 6 * 1000 - 20 * 8 * 350);
  topology.hbm_cap = 60'000;
  EXPECT_THAT(usable_hbm(tables, topology, settings, 0.1).error().message,
              ::testing::HasSubstr("expected memory for tables, found none"));
}

}  // namespace sharding_torchrec_plan_test
}  // namespace perfmodel::sharding
