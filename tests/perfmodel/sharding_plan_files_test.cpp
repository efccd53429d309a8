// Plans of TorchRec and HugeCTR in files: round trips, and every way to contradict oneself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/sharding/hugectr_plan_file.hpp"
#include "perfmodel/sharding/plan_export.hpp"
#include "perfmodel/sharding/torchrec_plan_file.hpp"
#include "sharding_cases.hpp"
#include "sharding_files.hpp"

namespace perfmodel::sharding {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Type = ShardingType;
using Kernel = ComputeKernel;

const FileFolder& folder() {
  static const FileFolder kFolder("sharding_plans");
  return kFolder;
}

ShardedTable table_of(const std::string& name, std::int64_t rows, std::int64_t dim) {
  return {.name = name, .rows = rows, .dim = dim};
}

// -------------------------------------------------------------------------------------- TorchRec

TEST(TorchrecPlanFile, SaysWhereEachShardLies) {
  const std::vector<ShardedTable> tables = {table_of("user", 10, 256), table_of("all", 3, 4)};
  const std::vector<TablePlacement> placements = {
      {.type = Type::kColumnWise, .ranks = {3, 0}},
      {.type = Type::kDataParallel, .kernel = Kernel::kDense}};
  EXPECT_EQ(torchrec_plan_text(tables, placements, 4, 2).value(), R"({
  "plan": {
    "embedding_bag_collection": {
      "user": {
        "sharding_type": "column_wise",
        "compute_kernel": "fused",
        "ranks": [3, 0],
        "shards": [
          {"shard_offsets": [0, 0], "shard_sizes": [10, 128], "placement": "rank:3/cuda:1"},
          {"shard_offsets": [0, 128], "shard_sizes": [10, 128], "placement": "rank:0/cuda:0"}
        ]
      },
      "all": {
        "sharding_type": "data_parallel",
        "compute_kernel": "dense",
        "ranks": [0, 1, 2, 3],
        "shards": null
      }
    }
  }
}
)");
}

/// Every type, with blocks of rows that are shorter or empty, and a width of its own.
struct EveryType {
  std::vector<ShardedTable> tables = {
      table_of("dp", 5, 8),      table_of("tw", 100, 64),  table_of("cw", 100, 512),
      table_of("rw", 10, 8),     table_of("few", 2, 8),    table_of("twrw", 9, 16),
      table_of("twcw", 50, 256), table_of("grid", 7, 256), table_of("na/me \"~\"", 4, 4)};
  std::vector<TablePlacement> placements = {
      {.type = Type::kDataParallel, .kernel = Kernel::kDense},
      {.ranks = {5}},
      {.type = Type::kColumnWise, .ranks = {7, 0}, .least_columns = 256},
      {.type = Type::kRowWise, .kernel = Kernel::kFusedUvm},
      {.type = Type::kRowWise, .ranks = {7, 6, 5, 4, 3, 2, 1, 0}},
      {.type = Type::kTableRowWise, .kernel = Kernel::kFusedUvmCaching, .ranks = {4, 5, 6, 7}},
      {.type = Type::kTableColumnWise, .ranks = {2, 1}},
      {.type = Type::kGrid, .ranks = {4, 5, 6, 7, 0, 1, 2, 3}},
      {.ranks = {0}}};
};

TEST(TorchrecPlanFile, ComesBackAsItWasWritten) {
  const EveryType all;
  const auto file = folder().file("all.json");
  ASSERT_TRUE(write_torchrec_plan(file, all.tables, all.placements, 8, 4));
  const auto plan = read_torchrec_plan(file);
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(plan->world, 8);
  EXPECT_EQ(plan->local_world, 4);
  const auto placements = match_plan(all.tables, *plan);
  ASSERT_TRUE(placements) << to_string(placements.error());
  EXPECT_EQ(*placements, all.placements);
  EXPECT_EQ(torchrec_plan_text(all.tables, *placements, 8, 4).value(), text_of(file));
}

TEST(TorchrecPlanFile, ModulesKeepTheirTables) {
  const std::vector<ShardedTable> tables = {table_of("a", 8, 4), table_of("b", 8, 4),
                                            table_of("c", 8, 4)};
  const std::vector<TablePlacement> placements(3, {.ranks = {1}});
  const std::vector<std::string> modules = {"m.x", "m.y", "m.x"};
  const auto file = folder().file("modules.json");
  ASSERT_TRUE(write_torchrec_plan(file, tables, placements, 2, 2, modules));
  const auto plan = read_torchrec_plan(file);
  ASSERT_TRUE(plan) << to_string(plan.error());
  ASSERT_EQ(plan->tables.size(), 3U);
  EXPECT_EQ(plan->tables[0].module + plan->tables[0].name, "m.xa");
  EXPECT_EQ(plan->tables[1].module + plan->tables[1].name, "m.xc");
  EXPECT_EQ(plan->tables[2].module + plan->tables[2].name, "m.yb");
  EXPECT_EQ(plan->tables[2].rows, 8);
  EXPECT_EQ(plan->tables[2].dim, 4);
}

TEST(TorchrecPlanFile, TellsTheRanksOfAHostWhereItCan) {
  const auto local_world = [](std::int64_t world, std::int64_t local,
                              const std::vector<std::int64_t>& ranks, bool everywhere) {
    std::vector<ShardedTable> tables = {table_of("c", 8, 128 * static_cast<int>(ranks.size()))};
    std::vector<TablePlacement> placements = {{.type = Type::kColumnWise, .ranks = ranks}};
    if (everywhere) {
      tables.push_back(table_of("d", 8, 4));
      placements.push_back({.type = Type::kDataParallel, .kernel = Kernel::kDense});
    }
    const auto file = folder().file("local.json");
    EXPECT_TRUE(write_torchrec_plan(file, tables, placements, world, local));
    return read_torchrec_plan(file).value().local_world;
  };
  EXPECT_EQ(local_world(16, 8, {9, 7}, false), 8);  // 9 is device 1, so 8 or less; 7 is device 7
  EXPECT_EQ(local_world(16, 8, {8}, false), std::nullopt);    // 8, 4, 2 or 1
  EXPECT_EQ(local_world(8, 8, {0, 7}, false), std::nullopt);  // the host may have more
  EXPECT_EQ(local_world(8, 8, {0, 7}, true), 8);
  EXPECT_EQ(local_world(8, 4, {0, 2}, true), std::nullopt);  // 4 or 8
  EXPECT_EQ(local_world(8, 1, {0, 3}, true), 1);
}

std::string write_error(const ShardedTable& table, const TablePlacement& placement) {
  const auto text = torchrec_plan_text(std::vector{table}, std::vector{placement}, 8, 4);
  return text ? "written" : to_string(text.error());
}

TEST(TorchrecPlanFile, WritesOnlyWhatTorchrecHas) {
  const ShardedTable table = table_of("t", 10, 8);
  EXPECT_EQ(write_error(table, {.type = Type::kRowSplit, .ranks = {0, 1}}),
            "table t: expected a type of TorchRec's, found row_split");
  EXPECT_EQ(write_error(table, {.type = Type::kDataParallel, .kernel = Kernel::kHashed}),
            "table t: expected a kernel of TorchRec's, found hashed");
  EXPECT_EQ(write_error(table, {.ranks = {8}}), "table t: expected ranks from 0 to 7, found 8");
  EXPECT_EQ(write_error(table, {}), "table t: expected a rank per shard, 1 in all, found 0");
  EXPECT_EQ(write_error(table, {.type = Type::kTableRowWise, .ranks = {0, 1, 2, 4}}),
            "table t: expected each block of rows on a rank of its own on one host, found ranks 0, "
            "1, 2, 4");
  const std::vector<ShardedTable> alike(2, table);
  const std::vector<TablePlacement> placements(2, {.ranks = {0}});
  EXPECT_EQ(torchrec_plan_text(alike, placements, 8, 4).error().message,
            "expected tables of different names, found \"t\" twice");
  EXPECT_EQ(torchrec_plan_text(alike, {}, 8, 4).error().message,
            "expected placements of 2 tables, found 0");
  EXPECT_EQ(
      torchrec_plan_text(alike, placements, 8, 4, std::vector<std::string>(3)).error().message,
      "expected modules of 2 tables, found 3");
  EXPECT_EQ(torchrec_plan_text(std::span(alike).first(1), std::span(placements).first(1), 8, 3)
                .error()
                .message,
            "expected ranks that are a multiple of those of a host, found 8 of 3");
}

std::string torchrec_error(const std::string& tables) {
  const auto plan =
      read_torchrec_plan(folder().written("p.json", "{\"plan\": {\"m\": {\n" + tables + "}}}"));
  return plan ? "read" : folder().without_folder(plan.error());
}

std::string shard(const std::string& offsets, const std::string& sizes, const std::string& place) {
  return "{\"shard_offsets\": [" + offsets + "], \"shard_sizes\": [" + sizes +
         "], \"placement\": \"" + place + "\"}";
}

std::string table_json(const std::string& type, const std::string& kernel, const std::string& ranks,
                       const std::string& shards) {
  return "{\"sharding_type\": \"" + type + "\", \"compute_kernel\": \"" + kernel +
         "\", \"ranks\": [" + ranks + "], \"shards\": " + shards + "}";
}

std::string torchrec_table_error(const std::string& type, const std::string& kernel,
                                 const std::string& ranks, const std::string& shards) {
  return torchrec_error("\"t\": " + table_json(type, kernel, ranks, shards));
}

TEST(TorchrecPlanFile, RefusesNamesAndShapesThatNobodyKnows) {
  const std::string one = "[" + shard("0, 0", "8, 4", "rank:0/cuda:0") + "]";
  EXPECT_EQ(torchrec_table_error("table_wise", "fused", "0", one), "read");
  EXPECT_EQ(torchrec_table_error("tablewise", "fused", "0", one),
            "p.json:2:24: /plan/m/t/sharding_type: expected a sharding type, the nearest is "
            "\"table_wise\", found \"tablewise\"");
  EXPECT_EQ(torchrec_table_error("row_split", "fused", "0", one),
            "p.json:2:24: /plan/m/t/sharding_type: expected a type of TorchRec's, found "
            "\"row_split\"");
  EXPECT_EQ(torchrec_table_error("table_wise", "quant", "0", one),
            "p.json:2:56: /plan/m/t/compute_kernel: expected a compute kernel, the nearest is "
            "\"fused\", found \"quant\"");
  EXPECT_EQ(torchrec_table_error("data_parallel", "hashed", "0", "null"),
            "p.json:2:59: /plan/m/t/compute_kernel: expected a kernel of TorchRec's, found "
            "\"hashed\"");
  EXPECT_EQ(torchrec_table_error("table_wise", "fused", "", "[]"),
            "p.json:2:74: /plan/m/t/ranks: expected at least one rank, found []");
  EXPECT_EQ(torchrec_table_error("table_wise", "fused", "-1", one),
            "p.json:2:75: /plan/m/t/ranks/0: expected a whole number of at least 0, found -1");
  EXPECT_EQ(torchrec_table_error("table_wise", "fused", "0", "null"),
            "p.json:2:89: /plan/m/t/shards: expected a list of shards, found none");
  EXPECT_EQ(torchrec_table_error("table_wise", "fused", "0, 1", one),
            "p.json:2:92: /plan/m/t/shards: expected a shard per rank, 2, found 1");
  EXPECT_EQ(torchrec_table_error("data_parallel", "dense", "0", one),
            "p.json:2:92: /plan/m/t/shards: expected null, as each rank has the whole table, found "
            "[{\"placement\":\"rank:0/cuda:0\",\"shard_...");
  EXPECT_EQ(torchrec_table_error("data_parallel", "dense", "0, 2", "null"),
            "p.json:2:77: /plan/m/t/ranks: expected each rank from 0 to 1, found [0,2]");
  EXPECT_EQ(torchrec_error("\"t\": 5"), "p.json:2:6: /plan/m/t: expected an object, found 5");
  EXPECT_EQ(torchrec_error(""), "p.json:1:10: /plan: expected at least one table, found none");
  EXPECT_EQ(folder().without_folder(
                read_torchrec_plan(folder().written("p.json", "{\"plans\": {}}")).error()),
            "p.json:1:1: /plan: expected this key, found nothing");
  EXPECT_EQ(torchrec_error("\"t\": {}, \"t\": {}"),
            "p.json:2:10: expected each key once, found \"t\" again");
  EXPECT_EQ(
      folder().without_folder(
          read_torchrec_plan(
              folder().written(
                  "p.json",
                  "{\"plan\": {\"m\": {\"t\": " + table_json("table_wise", "fused", "0", one) +
                      "}, \"n\": {\n\"t\": " + table_json("table_wise", "fused", "0", one) + "}}}"))
              .error()),
      "p.json:2:6: /plan/n/t: expected each table in one module, found it in another one "
      "too");
}

TEST(TorchrecPlanFile, RefusesShardsThatContradictEachOther) {
  const auto error = [](const std::string& type, const std::string& ranks,
                        const std::string& shards) {
    const std::string text = torchrec_table_error(type, "fused", ranks, "[" + shards + "]");
    return text.substr(std::min(text.size(), text.find("/plan/m/t")));
  };
  EXPECT_EQ(error("table_wise", "0", shard("0, 0", "8, 4", "rank:1/cuda:1")),
            "/plan/m/t/shards/0/placement: expected rank 0, as in ranks, found \"rank:1/cuda:1\"");
  for (const char* place : {"cuda:0", "rank:0", "rank:0/cpu", "rank:x/cuda:0", "rank:0/cuda:0 "}) {
    EXPECT_EQ(error("table_wise", "0", shard("0, 0", "8, 4", place)),
              "/plan/m/t/shards/0/placement: expected \"rank:R/cuda:r\", found \"" +
                  std::string(place) + "\"");
  }
  EXPECT_EQ(error("table_wise", "0", shard("0, 0", "8", "rank:0/cuda:0")),
            "/plan/m/t/shards/0/shard_sizes: expected rows and columns, found [8]");
  EXPECT_EQ(error("table_wise", "0", shard("0, 0", "0, 4", "rank:0/cuda:0")),
            "/plan/m/t/shards: expected rows and columns, found an empty table");
  EXPECT_EQ(error("table_wise", "0", shard("1, 0", "8, 4", "rank:0/cuda:0")),
            "/plan/m/t/shards/0/shard_sizes: expected [9, 4], found [8, 4]");
  EXPECT_EQ(
      error("table_wise", "0, 1",
            shard("0, 0", "8, 4", "rank:0/cuda:0") + ", " + shard("0, 4", "8, 4", "rank:1/cuda:1")),
      "/plan/m/t/shards: expected 1 shard as TorchRec cuts 8 x 8 elements for table_wise, "
      "found 2");
  EXPECT_EQ(
      error("column_wise", "0, 1",
            shard("0, 0", "8, 4", "rank:0/cuda:0") + ", " + shard("0, 4", "7, 4", "rank:1/cuda:1")),
      "/plan/m/t/shards/1/shard_sizes: expected [8, 4], found [7, 4]");
  EXPECT_EQ(
      error("column_wise", "0, 1",
            shard("0, 0", "8, 4", "rank:0/cuda:0") + ", " + shard("0, 2", "8, 6", "rank:1/cuda:1")),
      "/plan/m/t/shards/1/shard_sizes: expected [8, 4], found [8, 6]");
  EXPECT_EQ(
      error("row_wise", "0, 1",
            shard("0, 0", "6, 4", "rank:0/cuda:0") + ", " + shard("6, 0", "3, 4", "rank:1/cuda:1")),
      "/plan/m/t/shards/0/shard_sizes: expected [5, 4], found [6, 4]");
  EXPECT_EQ(
      error("row_wise", "0, 1",
            shard("0, 0", "5, 4", "rank:0/cuda:0") + ", " + shard("4, 0", "5, 4", "rank:1/cuda:1")),
      "/plan/m/t/shards/1/shard_sizes: expected [4, 4], found [5, 4]");
}

TEST(TorchrecPlanFile, RefusesTablesThatContradictEachOther) {
  const auto replicated = [](const std::string& name, const std::string& ranks) {
    return "\"" + name + "\": " + table_json("data_parallel", "dense", ranks, "null");
  };
  const auto whole = [](const std::string& name, const std::string& rank,
                        const std::string& place) {
    return "\"" + name + "\": " +
           table_json("table_wise", "fused", rank, "[" + shard("0, 0", "8, 4", place) + "]");
  };
  EXPECT_EQ(torchrec_error(replicated("a", "0, 1") + ",\n" + replicated("b", "0, 1, 2")),
            "p.json:3:77: /plan/m/b/ranks: expected 2 ranks, as other tables have, found [0,1,2]");
  EXPECT_EQ(torchrec_error(replicated("a", "0, 1") + ",\n" + whole("b", "2", "rank:2/cuda:0")),
            "p.json:1:10: /plan: expected ranks from 0 to 1, found 2");
  EXPECT_EQ(
      torchrec_error(whole("a", "2", "rank:2/cuda:0") + ",\n" + whole("b", "4", "rank:4/cuda:1")),
      "p.json:1:10: /plan: expected devices that are the ranks modulo the ranks of a host, "
      "found placements that contradict each other");
  const auto rows = [](const std::string& name, int blocks) {
    std::string ranks, shards;
    for (int i = 0; i < blocks; ++i) {
      const std::string rank = std::to_string(i);
      ranks += (i ? ", " : "") + rank;
      shards += (i ? ", " : "") + shard(rank + ", 0", "1, 4", "rank:" + rank + "/cuda:" + rank);
    }
    return "\"" + name + "\": " + table_json("table_row_wise", "fused", ranks, "[" + shards + "]");
  };
  EXPECT_EQ(torchrec_error(rows("a", 2) + ",\n" + rows("b", 3)),
            "p.json:3:99: /plan/m/b/shards: expected rows in 2 blocks, as in other tables, found "
            "3");
}

TEST(TorchrecPlanFile, IsMatchedWithItsTablesOnly) {
  NamedPlan plan;
  for (const char* name : {"a", "b", "x", "y"}) {
    plan.tables.push_back({.name = name, .placement = {.ranks = {0}}, .rows = 8, .dim = 4});
  }
  const auto message = [&](const std::vector<ShardedTable>& tables) {
    const auto placements = match_plan(tables, plan);
    return placements ? "matched" : placements.error().message;
  };
  const auto a = table_of("a", 8, 4), b = table_of("b", 8, 4), x = table_of("x", 8, 4),
             y = table_of("y", 8, 4);
  EXPECT_EQ(message({y, b, a, x}), "matched");
  EXPECT_EQ(message({a, b}),
            "expected placements of the 2 tables of the study, found some for x, y");
  EXPECT_EQ(message({a, b, x, y, table_of("z", 8, 4)}),
            "expected placements of the 5 tables of the study, found none for z");
  EXPECT_EQ(message({a, b, table_of("z", 8, 4)}),
            "expected placements of the 3 tables of the study, found none for z and some for x, y");
  std::vector<ShardedTable> many;
  for (int i = 0; i < 7; ++i) many.push_back(table_of("t" + std::to_string(i), 8, 4));
  EXPECT_EQ(message(many),
            "expected placements of the 7 tables of the study, found none for t0, t1, t2, t3, t4 "
            "and 2 more and some for a, b, x, y");
  EXPECT_EQ(message({a, b, table_of("x", 9, 4), y}),
            "table x: expected a plan for 9 x 4 elements, found one for 8 x 4");
  EXPECT_EQ(message({a, b, table_of("x", 8, 8), y}),
            "table x: expected a plan for 8 x 8 elements, found one for 8 x 4");
}

TEST(TorchrecPlanFile, PublicPlansKeepTheirRatings) {
  const Json all = public_json("torchrec_plan_cases.json"), models = public_json("models.json");
  if (all.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::size_t cases = 0;
  for (const Json& one : all["cases"]) {
    SCOPED_TRACE(one["id"].get<std::string>());
    const auto tables = tables_of_case(one, models);
    const auto placements = placements_of_case(one, tables);
    const auto topology =
        topology_of(all["meta"]["topologies"][one["topology"].get<std::string>()]);
    const auto file = folder().file("case.json");
    const auto written =
        write_torchrec_plan(file, tables, placements, topology.world, topology.local_world);
    ASSERT_TRUE(written) << to_string(written.error());
    const auto plan = read_torchrec_plan(file);
    ASSERT_TRUE(plan) << to_string(plan.error());
    EXPECT_EQ(plan->world.value_or(topology.world), topology.world);
    EXPECT_EQ(plan->local_world.value_or(topology.local_world), topology.local_world);
    const auto matched = match_plan(tables, *plan);
    ASSERT_TRUE(matched) << to_string(matched.error());
    EXPECT_EQ(*matched, placements);
    EXPECT_EQ(torchrec_plan_text(tables, *matched, topology.world, topology.local_world).value(),
              text_of(file));
    const TorchrecSettings settings{.batch = one["batch_size_per_rank"]};
    const double before = rate_plan(tables, placements, topology, settings).value().rating_ms();
    EXPECT_EQ(rate_plan(tables, *matched, topology, settings).value().rating_ms(), before);
    EXPECT_NEAR(before, one["best_rating_ms"].get<double>(), 1e-9 * before);
    ++cases;
  }
  EXPECT_EQ(cases, 12U);
}

// --------------------------------------------------------------------------------------- HugeCTR

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
    ASSERT_TRUE(write_hugectr_plan(file, one));
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
      {.type = Type::kRowSplit, .ranks = {0, 1, 4, 5}},
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
  EXPECT_EQ(message({.ranks = {0}}, kNode),
            "table b: expected data_parallel, table_row_wise or row_split in HugeCTR's plan per "
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
  EXPECT_EQ(message({.type = Type::kRowSplit, .ranks = {1, 2}}, kNode),
            "table b: expected all ranks of each node, once, found ranks 1, 2");
  EXPECT_EQ(message({.type = Type::kRowSplit, .ranks = {0, 1, 2}}, kNode),
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

/// What the planner script of a public case decided, as a file.
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
    ASSERT_TRUE(write_hugectr_plan(file, *plan));
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
    ASSERT_TRUE(write_hugectr_plan(file, *made));
    const auto again = read_hugectr_plan(file);
    ASSERT_TRUE(again) << to_string(again.error());
    EXPECT_EQ(hugectr_plan_text(*again), text_of(file));
    EXPECT_EQ(hugectr_placements(*again, tables, world, local_world).value(), *placements);
    ++cases;
  }
  EXPECT_EQ(cases, 5U);
}

// ------------------------------------------------------------------------------------------- CSV

TEST(PlanCsv, HasARowPerShard) {
  const std::vector<ShardedTable> tables = {table_of("dp", 5, 8), table_of("a,\"b\"", 9, 16),
                                            table_of("grid", 7, 256), table_of("split", 10, 16),
                                            table_of("few", 1, 4)};
  const std::vector<TablePlacement> placements = {
      {.type = Type::kDataParallel, .kernel = Kernel::kDense},
      {.ranks = {3}},
      {.type = Type::kGrid, .kernel = Kernel::kFusedUvm, .ranks = {2, 3, 0, 1}},
      {.type = Type::kRowSplit, .ranks = {3, 0, 1}},
      {.type = Type::kRowWise}};
  EXPECT_EQ(plan_csv(tables, placements, 4, 2).value(),
            "table,type,kernel,rank,rows,columns,row_offset,column_offset\n"
            "dp,data_parallel,dense,0,5,8,0,0\n"
            "dp,data_parallel,dense,1,5,8,0,0\n"
            "dp,data_parallel,dense,2,5,8,0,0\n"
            "dp,data_parallel,dense,3,5,8,0,0\n"
            "\"a,\"\"b\"\"\",table_wise,fused,3,9,16,0,0\n"
            "grid,grid_shard,fused_uvm,2,4,128,0,0\n"
            "grid,grid_shard,fused_uvm,3,3,128,4,0\n"
            "grid,grid_shard,fused_uvm,0,4,128,0,128\n"
            "grid,grid_shard,fused_uvm,1,3,128,4,128\n"
            "split,row_split,fused,3,4,16,,0\n"
            "split,row_split,fused,0,3,16,,0\n"
            "split,row_split,fused,1,3,16,,0\n"
            "few,row_wise,fused,0,1,4,0,0\n");
  const auto file = folder().file("plan.csv");
  ASSERT_TRUE(write_plan_csv(file, tables, placements, 4, 2));
  EXPECT_EQ(text_of(file), plan_csv(tables, placements, 4, 2).value());
}

TEST(PlanCsv, RefusesWhatLiesNowhere) {
  const auto message = [](const TablePlacement& placement) {
    return plan_csv(std::vector{table_of("t", 9, 4)}, std::vector{placement}, 4, 2).error().message;
  };
  EXPECT_EQ(message({.type = Type::kRowSplit}), "table t: expected ranks for its rows, found none");
  EXPECT_EQ(message({.type = Type::kRowSplit, .ranks = {4}}),
            "table t: expected ranks from 0 to 3, found 4");
  EXPECT_EQ(message({.ranks = {0, 1}}), "table t: expected a rank per shard, 1 in all, found 2");
  EXPECT_EQ(plan_csv(std::vector{table_of("t", 9, 4)}, {}, 4, 2).error().message,
            "expected placements of 1 tables, found 0");
}

}  // namespace
}  // namespace perfmodel::sharding
