// TorchRec's plans in files: round trips, and every way to contradict oneself.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/output_file.hpp"
#include "sharding/torchrec_plan_file.hpp"
#include "sharding_cases.hpp"
#include "sharding_files.hpp"

namespace perfmodel::sharding {
namespace sharding_torchrec_plan_file_test {

using Type = ShardingType;
using Kernel = ComputeKernel;

const FileFolder& folder() {
  static const FileFolder kFolder("sharding_torchrec_plan");
  return kFolder;
}

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
  ASSERT_TRUE(write_file(file, torchrec_plan_text(all.tables, all.placements, 8, 4).value()));
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
  ASSERT_TRUE(write_file(file, torchrec_plan_text(tables, placements, 2, 2, modules).value()));
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
    EXPECT_TRUE(write_file(file, torchrec_plan_text(tables, placements, world, local).value()));
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
            "/plan/m/t/shards: expected rows and columns of a table, found 0 x 4");
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
    const auto text = torchrec_plan_text(tables, placements, topology.world, topology.local_world);
    ASSERT_TRUE(text) << to_string(text.error());
    ASSERT_TRUE(write_file(file, *text));
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

}  // namespace sharding_torchrec_plan_file_test
}  // namespace perfmodel::sharding
