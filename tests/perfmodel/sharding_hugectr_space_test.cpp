// Costs of NVIDIA's planner script for HugeCTR, and plans that are no worse than its own.
#include "reference/hugectr_space.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sharding_cases.hpp"

namespace perfmodel::sharding {
namespace sharding_hugectr_space_test {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Matrix = std::vector<std::vector<std::int64_t>>;

TEST(HugectrSpace, CostsAreThoseOfItsPlannerAndPlansNoWorse) {
  const Json all = public_json("hugectr_plan_cases.json"), models = public_json("models.json");
  if (all.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  fmt::print("case  HugeCTR  found  bound  [s]\n");
  for (const Json& one : all["cases"]) {
    SCOPED_TRACE(one["id"].get<std::string>());
    const auto tables =
        tables_of_case({{"model", one["table"]}, {"dtype", "fp32"}, {"optimizer", "sgd"}}, models);
    const HugectrSettings settings{.nodes = one["nodes"],
                                   .gpus_per_node = one["gpus_per_node"],
                                   .hierarchical = one["sharding_plan"] == "hier_auto",
                                   .memory_to_exchange = one["mem_comm_bw_ratio"],
                                   .work_ratio = one["mem_comm_work_ratio"],
                                   .data_parallel_below_gb = one["dp_sharding_threshold_gb"],
                                   .memory_cap_gb = one["memory_cap_for_embedding_gb"],
                                   .row_elements = one["ev_size"],
                                   .bytes_per_element = one["bytes_per_elem"]};
    const auto cost = hugectr_cost(tables, one["shard_matrix"].get<Matrix>(), settings);
    ASSERT_TRUE(cost) << to_string(cost.error());
    ASSERT_EQ(cost->buckets.size(), one["hotness_cost"].size());
    for (std::size_t b = 0; b < cost->buckets.size(); ++b) {
      EXPECT_DOUBLE_EQ(cost->buckets[b].hotness, one["hotness_cost"][b].get<double>()) << b;
      EXPECT_DOUBLE_EQ(cost->buckets[b].tables, one["table_cost"][b].get<double>()) << b;
      EXPECT_NEAR(cost->buckets[b].gigabytes, one["mem_gb"][b].get<double>(), 1e-9) << b;
    }
    EXPECT_DOUBLE_EQ(cost->largest(), one["max_cost"].get<double>());
    for (const Json& group : one["strategy"]) {
      for (std::size_t table : group[1].get<std::vector<std::size_t>>()) {
        EXPECT_EQ(is_data_parallel(tables[table], settings), group[0] == "dp") << table;
      }
    }

    const auto space = make_hugectr_space(tables, settings);
    ASSERT_TRUE(space) << to_string(space.error());
    const auto found = search_plans(*space, {.move_budget = 300'000});
    ASSERT_TRUE(found) << to_string(found.error());
    const auto mine = hugectr_cost(tables, shard_matrix(*space, found->plans.front()), settings);
    ASSERT_TRUE(mine) << to_string(mine.error());
    EXPECT_NEAR(mine->largest(), found->plans.front().objective, 1e-12 * mine->largest());
    EXPECT_LE(mine->largest(), cost->largest());
    EXPECT_LE(found->lower_bound, mine->largest());
    for (const auto& bucket : mine->buckets) {
      EXPECT_LE(bucket.gigabytes, settings.memory_cap_gb + 1e-6);
    }
    fmt::print("{:5} {:7.2f} {:6.2f} {:6.2f} {:4.2f}\n", one["id"].get<std::string>(),
               cost->largest(), mine->largest(), found->lower_bound, found->seconds);
  }
}

class SmallHugectr : public ::testing::Test {
 protected:
  // 1,000 rows of 1 MB are a GB; the last table is below the threshold.
  static ShardedTable table(std::int64_t rows, std::vector<double> hotness) {
    ShardedTable made{.name = "t", .rows = rows};
    made.features.clear();
    for (double ids : hotness) made.features.push_back({.pooling_factor = ids});
    return made;
  }
  std::string message(const Matrix& matrix) const {
    const auto cost = hugectr_cost(tables_, matrix, settings_);
    return cost ? "costs" : cost.error().message;
  }
  std::vector<ShardedTable> tables_ = {table(2000, {3, 5}), table(1000, {4}), table(10, {50})};
  HugectrSettings settings_{.nodes = 2,
                            .gpus_per_node = 1,
                            .memory_to_exchange = 2,
                            .work_ratio = 4,
                            .data_parallel_below_gb = 0.1,
                            .memory_cap_gb = 2,
                            .row_elements = 1000,
                            .bytes_per_element = 1000};
};

TEST_F(SmallHugectr, AddsHotnessAndShards) {
  const auto cost = hugectr_cost(tables_, {{0, 1, 2}, {0, 2}}, settings_);
  ASSERT_TRUE(cost);
  EXPECT_DOUBLE_EQ(cost->buckets[0].hotness, 8);    // 8 / 2 + 4
  EXPECT_DOUBLE_EQ(cost->buckets[0].tables, 1);     // two shards of half
  EXPECT_DOUBLE_EQ(cost->buckets[0].gigabytes, 2);  // 1 + 1
  EXPECT_DOUBLE_EQ(cost->buckets[1].hotness, 4);
  EXPECT_DOUBLE_EQ(cost->largest(), 9);
}

TEST_F(SmallHugectr, FindsTheBestSplitsThatFit) {
  const auto plan_of = [&] {
    const auto space = make_hugectr_space(tables_, settings_);
    const auto found = search_plans(space.value(), {});
    EXPECT_TRUE(found && found->proved_best);
    return found->plans.front();
  };
  // Both split: 4 + 2 + two shards.
  EXPECT_DOUBLE_EQ(plan_of().objective, 7);
  settings_.memory_to_exchange = 40;  // a shard costs 10: each whole
  EXPECT_DOUBLE_EQ(plan_of().objective, 18);
  settings_.memory_cap_gb = 1.5;  // the first does not fit whole
  EXPECT_DOUBLE_EQ(plan_of().objective, 26);
}

TEST_F(SmallHugectr, SaysWhatIsWrong) {
  EXPECT_EQ(message({{0, 1, 2}, {0, 2}}), "costs");
  EXPECT_EQ(message({{0, 1, 2}}), "expected 2 buckets, found 1");
  EXPECT_EQ(message({{0, 1, 2}, {3}}), "expected tables below 3, found 3");
  EXPECT_EQ(message({{0, 1, 2}, {0, 0, 2}}),
            "expected a table once per bucket, found 0 twice in 1");
  EXPECT_EQ(message({{0, 2}, {2}}), "expected table t in some bucket, found 0 shards");
  EXPECT_EQ(message({{0, 1, 2}, {}}), "expected table t in all buckets, found 1 shards");
  settings_.work_ratio = 0;
  EXPECT_THAT(message({}), HasSubstr("ratios and sizes above 0, found 0"));
}

}  // namespace sharding_hugectr_space_test
}  // namespace perfmodel::sharding
