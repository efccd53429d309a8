// HugeCTR's plans in files: round trips, and every way to contradict oneself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "perfmodel/detail/output_file.hpp"
#include "sharding/hugectr_plan_file.hpp"
#include "sharding_cases.hpp"
#include "sharding_files.hpp"

namespace perfmodel::sharding {
namespace sharding_hugectr_plan_file_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Type = ShardingType;
using Kernel = ComputeKernel;

const FileFolder& folder() {
  static const FileFolder kFolder("sharding_hugectr_plan");
  return kFolder;
}

std::vector<ShardedTable> tables_named(const std::vector<std::string>& names) {
  std::vector<ShardedTable> tables;
  for (const std::string& name : names) tables.push_back(table_of(name, 100, 128));
  return tables;
}

TEST(HugectrPlanFile, ListsTheTablesOfEachGpu) {
  const auto tables = tables_named({"a", "b", "c"});
  const std::vector<TablePlacement> placements = {
      {.type = Type::kRowSplit, .ranks = {2, 0}},
      {.type = Type::kDataParallel, .kernel = Kernel::kDense},
      {.ranks = {1}}};
  const auto plan = hugectr_plan(tables, placements, 4, 2, HugectrBucket::kGpu);
  ASSERT_TRUE(plan) << to_string(plan.error());
  const std::string text = R"({
  "shard_strategy": [["mp", ["a", "c"]], ["dp", ["b"]]],
  "shard_matrix": [
    ["a", "b"],
    ["c", "b"],
    ["a", "b"],
    ["b"]
  ]
}
)";
  EXPECT_EQ(hugectr_plan_text(*plan), text);
  const auto numbered = hugectr_plan(tables, placements, 4, 2, HugectrBucket::kGpu, true);
  ASSERT_TRUE(numbered);
  EXPECT_THAT(hugectr_plan_text(*numbered), HasSubstr("[[\"mp\", [0, 2]], [\"dp\", [1]]]"));

  for (const HugectrPlan& one : {*plan, *numbered}) {
    const auto file = folder().file("h.json");
    ASSERT_TRUE(write_file(file, hugectr_plan_text(one)));
    const auto read = read_hugectr_plan(file);
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(*read, one);
    EXPECT_EQ(hugectr_plan_text(*read), text_of(file));
    const auto back = hugectr_placements(*read, tables, 4, 2);
    ASSERT_TRUE(back) << to_string(back.error());
    EXPECT_THAT(back->at(0).ranks, ElementsAre(0, 2));
    EXPECT_EQ(back->at(0).type, Type::kRowSplit);
    EXPECT_EQ(back->at(1), placements[1]);
    EXPECT_EQ(back->at(2), placements[2]);
  }
}

TEST(HugectrPlanFile, ListsTheTablesOfEachNode) {
  const auto tables = tables_named({"a", "b", "c"});
  const std::vector<TablePlacement> placements = {
      {.type = Type::kHostRowSplit, .ranks = {0, 1, 4, 5}},
      {.type = Type::kDataParallel, .kernel = Kernel::kDense},
      {.type = Type::kTableRowWise, .ranks = {2, 3}}};
  const auto plan = hugectr_plan(tables, placements, 6, 2, HugectrBucket::kNode);
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_THAT(plan->buckets,
              ElementsAre(ElementsAre("a", "b"), ElementsAre("c", "b"), ElementsAre("a", "b")));
  EXPECT_EQ(hugectr_placements(*plan, tables, 6, 2).value(), placements);
}

TEST(HugectrPlanFile, SaysWhichTableItCannotHold) {
  const auto tables = tables_named({"a", "b"});
  const auto message = [&](const TablePlacement& placement, HugectrBucket bucket) {
    const std::vector<TablePlacement> placements = {
        {.type = Type::kDataParallel, .kernel = Kernel::kDense}, placement};
    const auto plan = hugectr_plan(tables, placements, 4, 2, bucket);
    return plan ? "made" : to_string(plan.error());
  };
  using enum HugectrBucket;
  EXPECT_EQ(message({.type = Type::kColumnWise, .ranks = {0}}, kGpu),
            "table b: expected data_parallel, table_wise or row_split in HugeCTR's plan per GPU, "
            "found column_wise");
  EXPECT_EQ(
      message({.ranks = {0}}, kNode),
      "table b: expected data_parallel, table_row_wise or host_row_split in HugeCTR's plan per "
      "node, found table_wise");
  EXPECT_EQ(message({.kernel = Kernel::kFusedUvm, .ranks = {0}}, kGpu),
            "table b: expected kernel fused in HugeCTR's plan, found fused_uvm");
  EXPECT_EQ(message({.type = Type::kDataParallel, .kernel = Kernel::kHashed}, kGpu),
            "table b: expected kernel dense in HugeCTR's plan, found hashed");
  EXPECT_EQ(message({.ranks = {0, 1}}, kGpu), "table b: expected one rank, found ranks 0, 1");
  EXPECT_EQ(message({.ranks = {4}}, kGpu), "table b: expected ranks from 0 to 3, found ranks 4");
  EXPECT_EQ(message({}, kGpu), "table b: expected ranks from 0 to 3, found ranks ");
  EXPECT_EQ(message({.type = Type::kRowSplit, .ranks = {1, 1}}, kGpu),
            "table b: expected each rank once, found ranks 1, 1");
  EXPECT_EQ(message({.type = Type::kHostRowSplit, .ranks = {1, 2}}, kNode),
            "table b: expected all ranks of each node, once, found ranks 1, 2");
  EXPECT_EQ(message({.type = Type::kHostRowSplit, .ranks = {0, 1, 2}}, kNode),
            "table b: expected all ranks of each node, once, found ranks 0, 1, 2");
  EXPECT_EQ(message({.type = Type::kTableRowWise, .ranks = {0, 1, 2, 3}}, kNode),
            "table b: expected the ranks of one node, found ranks 0, 1, 2, 3");
  EXPECT_EQ(hugectr_plan(tables, {}, 4, 2, kGpu).error().message,
            "expected placements of 2 tables, found 0");
  EXPECT_EQ(hugectr_plan(tables, {}, 4, 3, kGpu).error().message,
            "expected ranks that are a multiple of those of a host, found 4 of 3");
  const auto alike = tables_named({"a", "a"});
  EXPECT_EQ(hugectr_plan(alike, std::vector<TablePlacement>(2, {.ranks = {0}}), 4, 2, kGpu)
                .error()
                .message,
            "table a: expected a name of its own, found it twice");
}

TEST(HugectrPlanFile, IsMatchedWithItsTablesOnly) {
  const HugectrPlan plan{
      .model_parallel = {"a"}, .data_parallel = {"b"}, .buckets = {{"a", "b"}, {"b"}}};
  const auto message = [](const HugectrPlan& of, const std::vector<std::string>& names,
                          std::int64_t world, std::int64_t local_world) {
    const auto placements = hugectr_placements(of, tables_named(names), world, local_world);
    return placements ? "matched" : to_string(placements.error());
  };
  EXPECT_EQ(message(plan, {"b", "a"}, 2, 1), "matched");
  EXPECT_EQ(message(plan, {"b", "a"}, 16, 8), "matched");
  EXPECT_EQ(message(plan, {"a", "b"}, 8, 8),
            "expected lists of tables for 8 GPUs or 1 nodes, found 2");
  EXPECT_EQ(message(plan, {"a", "b", "c"}, 2, 1), "table c: expected it in the plan, found none");
  EXPECT_EQ(message(plan, {"a"}, 2, 1),
            "expected a plan for 1 tables, found another table in it, b");
  EXPECT_EQ(message(plan, {"a", "b"}, 2, 0),
            "expected ranks that are a multiple of those of a host, found 2 of 0");
  const HugectrPlan numbered{.model_parallel = {"0"}, .buckets = {{"0"}}, .by_number = true};
  EXPECT_EQ(message(numbered, {"x"}, 1, 1), "matched");
  EXPECT_EQ(message(numbered, {"x", "y"}, 1, 1),
            "table y: expected it in the plan, found no table 1");
}

TEST(HugectrPlanFile, RefusesWhatContradictsItself) {
  const auto error = [](const std::string& text) {
    const auto plan = read_hugectr_plan(folder().written("h.json", text));
    return plan ? "read" : folder().without_folder(plan.error());
  };
  const std::string head = "{\"shard_strategy\": [[\"mp\", [0]], [\"dp\", [1]]],\n";
  EXPECT_EQ(error(head + "\"shard_matrix\": [[0, 1]]}"), "read");
  EXPECT_EQ(error(head + "\"shard_matrix\": [[1]]}"),
            "h.json:2:17: /shard_matrix: expected table 0 in some list, found it in none");
  EXPECT_EQ(error(head + "\"shard_matrix\": [[0, 1], [0]]}"),
            "h.json:2:26: /shard_matrix/1: expected all data-parallel tables, found a list without "
            "1");
  EXPECT_EQ(error(head + "\"shard_matrix\": [[0, 1, 2]]}"),
            "h.json:2:25: /shard_matrix/0/2: expected tables that have a strategy, found 2");
  EXPECT_EQ(error(head + "\"shard_matrix\": [[0, 1, 0]]}"),
            "h.json:2:18: /shard_matrix/0: expected each table once, found 0 twice");
  EXPECT_EQ(error(head + "\"shard_matrix\": [[0, \"1\"]]}"),
            "h.json:2:22: /shard_matrix/0/1: expected a number, as before, found \"1\"");
  EXPECT_EQ(error(head + "\"shard_matrix\": [[0, 1.5]]}"),
            "h.json:2:22: /shard_matrix/0/1: expected the name or number of a table, found 1.5");
  EXPECT_EQ(error(head + "\"shard_matrix\": []}"),
            "h.json:2:17: /shard_matrix: expected at least one list of tables, found []");
  EXPECT_EQ(error(head + "\"shard_matrix\": [5]}"),
            "h.json:2:18: /shard_matrix/0: expected a list of tables, found 5");
  EXPECT_EQ(error(head + "\"strategy\": [], \"shard_matrix\": [[0, 1]]}"),
            "h.json:2:13: /strategy: expected shard_strategy or strategy, not both, found []");
  EXPECT_EQ(error(head + "\"shard_matrix\": [[0, 1]], \"cap\": 1}"),
            "h.json:2:34: /cap: expected no such key, found 1");
  EXPECT_EQ(error("{\"shard_strategy\": [[\"mp\", [0]], [\"dp\", [0]]],\n\"shard_matrix\": [[0]]}"),
            "h.json:1:34: /shard_strategy/1: expected each table once, found 0 twice");
  EXPECT_EQ(error("{\"strategy\": [[\"rw\", [0]]],\n\"shard_matrix\": [[0]]}"),
            "h.json:1:16: /strategy/0/0: expected \"mp\" or \"dp\", found \"rw\"");
  EXPECT_EQ(error("{\"strategy\": [[\"mp\"]],\n\"shard_matrix\": [[0]]}"),
            "h.json:1:15: /strategy/0: expected a strategy and its tables, found [\"mp\"]");
  EXPECT_EQ(error("{\"strategy\": [],\n\"shard_matrix\": [[]]}"),
            "h.json: expected at least one table, found none");
  EXPECT_EQ(error("{\"shard_matrix\": [[0]]}"),
            "h.json:1:1: /shard_strategy: expected this key, found nothing");
}

/// The decision of a public case's planner script, as a file.
Json file_of_case(const Json& one) {
  return {{"strategy", one["strategy"]}, {"shard_matrix", one["shard_matrix"]}};
}

TEST(HugectrPlanFile, PublicPlansComeBack) {
  const Json all = public_json("hugectr_plan_cases.json");
  if (all.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::size_t cases = 0;
  for (const Json& one : all["cases"]) {
    SCOPED_TRACE(one["id"].get<std::string>());
    const auto file = folder().written("case.json", file_of_case(one).dump());
    const auto plan = read_hugectr_plan(file);
    ASSERT_TRUE(plan) << to_string(plan.error());
    EXPECT_TRUE(plan->by_number && plan->short_key);
    EXPECT_EQ(Json::parse(hugectr_plan_text(*plan)), file_of_case(one));
    ASSERT_TRUE(write_file(file, hugectr_plan_text(*plan)));
    EXPECT_EQ(hugectr_plan_text(read_hugectr_plan(file).value()), text_of(file));

    const std::int64_t local_world = one["gpus_per_node"];
    const std::int64_t world = one["nodes"].get<std::int64_t>() * local_world;
    const bool per_node = one["sharding_plan"] == "hier_auto";
    const auto tables = tables_named(std::vector<std::string>(26, "t"));
    const auto placements = hugectr_placements(*plan, tables, world, local_world);
    ASSERT_TRUE(placements) << to_string(placements.error());
    const auto made = hugectr_plan(tables, *placements, world, local_world,
                                   per_node ? HugectrBucket::kNode : HugectrBucket::kGpu, true);
    ASSERT_TRUE(made) << to_string(made.error());
    EXPECT_EQ(made->data_parallel, plan->data_parallel);
    ASSERT_EQ(made->buckets.size(), plan->buckets.size());
    for (std::size_t b = 0; b < made->buckets.size(); ++b) {
      const auto sorted = [](std::vector<std::string> names) {
        std::ranges::sort(names);
        return names;
      };
      EXPECT_EQ(sorted(made->buckets[b]), sorted(plan->buckets[b])) << b;
    }
    ASSERT_TRUE(write_file(file, hugectr_plan_text(*made)));
    const auto again = read_hugectr_plan(file);
    ASSERT_TRUE(again) << to_string(again.error());
    EXPECT_EQ(hugectr_plan_text(*again), text_of(file));
    EXPECT_EQ(hugectr_placements(*again, tables, world, local_world).value(), *placements);
    ++cases;
  }
  EXPECT_EQ(cases, 5U);
}

}  // namespace sharding_hugectr_plan_file_test
}  // namespace perfmodel::sharding
