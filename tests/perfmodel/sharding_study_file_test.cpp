// Studies in files: every key, and every way to get one wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sharding/study_file.hpp"
#include "sharding_cases.hpp"
#include "sharding_files.hpp"

namespace perfmodel::sharding {
namespace sharding_study_file_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const FileFolder& folder() {
  static const FileFolder kFolder("sharding_study");
  return kFolder;
}

std::string error_of(const std::string& name, const std::string& text) {
  const auto study = read_sharding_study(folder().written(name, text));
  return study ? "read" : folder().without_folder(study.error());
}

constexpr std::string_view kHead = R"({"schema": "perfmodel-sharding-study", "version": 1,)";

/// Errors of a study on its second and further lines.
std::string error_of_members(const std::string& members) {
  return error_of("s.json", std::string(kHead) + "\n" + members + "}");
}

std::string error_of_table(const std::string& members) {
  return error_of_members(R"("tables": [{"name": "a", )" + members + "}]");
}

std::string error_of_dense(const std::string& members) {
  return error_of_members(R"("tables": [{"name": "a", "rows": 9, "dim": 4, "pooling": 1}],)"
                          "\n"
                          R"("dense": {)" +
                          members + "}");
}

TEST(StudyFile, HoldsMachineDensePartAndTables) {
  const auto study = read_sharding_study(folder().written("whole.json", R"({
    "schema": "perfmodel-sharding-study", "version": 1,
    "name": "ads", "gpu": "a100-sxm-80gb", "topology": "dgx-a100",
    "world": 16, "local_world": 8, "batch_per_rank": 2048,
    "pipeline": "prefetch", "free_share": 0.1,
    "dense": {"bottom_mlp": [13, 512, 128], "top_mlp": [1024, 1], "interaction": "low_rank_cross",
              "cross_layers": 2, "cross_rank": 256, "dtype": "bf16"},
    "defaults": {"dim": 64, "dtype": "fp16", "optimizer": "adam", "pooling": 3, "min_columns": 32},
    "tables": [
      {"name": "plain", "rows": 4e7},
      {"name": "alike", "rows": 10, "dim": 32, "count": 2, "pooling": 0.5},
      {"name": "full", "rows": 1000, "dtype": "int8", "output_dtype": "fp32", "optimizer": "none",
       "weighted": true, "pooled": false,
       "features": [{"pooling": 2}, {"pooling": 1.5, "poolings": 4, "batch": 512}],
       "zipf": {"exponent": 1.05, "shift": 2}, "min_columns": 16,
       "cache": {"load_factor": 0.3, "prefetch": true, "expected_lookups": 900,
                 "distances": [5, 0, 2.5]},
       "wire": {"forward": "fp16", "backward": "bf16"},
       "types": ["table_wise", "grid_shard"], "kernels": ["fused", "fused_uvm_caching"],
       "keep_with": "user", "forbid_ranks": [0, 15]}
    ]})"));
  ASSERT_TRUE(study) << to_string(study.error());
  EXPECT_EQ(study->name, "ads");
  EXPECT_EQ(study->gpu, "a100-sxm-80gb");
  EXPECT_EQ(study->topology, "dgx-a100");
  EXPECT_EQ(study->world, 16);
  EXPECT_EQ(study->local_world, 8);
  EXPECT_EQ(study->batch_per_rank, 2048);
  EXPECT_EQ(study->pipeline, TorchrecSettings::Pipeline::kPrefetchSparseDist);
  EXPECT_EQ(study->free_share, 0.1);
  ASSERT_TRUE(study->dense);
  EXPECT_THAT(study->dense->bottom_mlp, ElementsAre(13, 512, 128));
  EXPECT_THAT(study->dense->top_mlp, ElementsAre(1024, 1));
  EXPECT_EQ(study->dense->interaction, DensePart::Interaction::kLowRankCross);
  EXPECT_EQ(study->dense->cross_layers, 2);
  EXPECT_EQ(study->dense->cross_rank, 256);
  EXPECT_EQ(study->dense->dtype, "bfloat16");

  ASSERT_EQ(study->tables.size(), 4U);
  const ShardedTable& plain = study->tables[0];
  EXPECT_EQ(plain.name, "plain");
  EXPECT_EQ(plain.rows, 40'000'000);
  EXPECT_EQ(plain.dim, 64);
  EXPECT_EQ(plain.element_bytes, 2);
  EXPECT_EQ(plain.optimizer, TableOptimizer::kAdam);
  EXPECT_EQ(plain.least_columns, 32);
  ASSERT_EQ(plain.features.size(), 1U);
  EXPECT_EQ(plain.features[0].pooling_factor, 3);
  EXPECT_FALSE(plain.output_bytes || plain.weighted || !plain.pooled);
  EXPECT_EQ(plain.rules, PlacementRules{});

  EXPECT_EQ(study->tables[1].name, "alike_0");
  EXPECT_EQ(study->tables[2].name, "alike_1");
  EXPECT_EQ(study->tables[2].dim, 32);
  EXPECT_EQ(study->tables[2].features[0].pooling_factor, 0.5);

  const ShardedTable& full = study->tables[3];
  EXPECT_EQ(full.element_bytes, 1);
  EXPECT_EQ(full.output_bytes, 4);
  EXPECT_EQ(full.optimizer, TableOptimizer::kNone);
  EXPECT_TRUE(full.weighted && !full.pooled);
  ASSERT_EQ(full.features.size(), 2U);
  EXPECT_EQ(full.features[1].pooling_factor, 1.5);
  EXPECT_EQ(full.features[1].poolings, 4);
  EXPECT_EQ(full.features[1].batch, 512);
  EXPECT_EQ(full.skew, (RowSkew{.exponent = 1.05, .shift = 2}));
  EXPECT_EQ(full.least_columns, 16);
  EXPECT_EQ(full.cache.load_factor, 0.3);
  EXPECT_TRUE(full.cache.prefetches);
  ASSERT_TRUE(full.cache.statistics);
  EXPECT_EQ(full.cache.statistics->expected_lookups, 900);
  EXPECT_THAT(full.cache.statistics->distances, ElementsAre(5, 0, 2.5));
  EXPECT_EQ(full.forward_wire_bytes, 2);
  EXPECT_EQ(full.backward_wire_bytes, 2);
  EXPECT_EQ(full.rules,
            (PlacementRules{.types = {ShardingType::kTableWise, ShardingType::kGrid},
                            .kernels = {ComputeKernel::kFused, ComputeKernel::kFusedUvmCaching},
                            .keep_with = "user",
                            .forbidden_ranks = {0, 15}}));
}

TEST(StudyFile, LeavesOpenWhatIsNotSaid) {
  const auto study = read_sharding_study(folder().written(
      "short.json",
      std::string(kHead) + R"("tables": [{"name": "a", "rows": 9, "dim": 4, "pooling": 1}]})"));
  ASSERT_TRUE(study) << to_string(study.error());
  EXPECT_TRUE(study->name.empty() && study->gpu.empty() && study->topology.empty());
  EXPECT_FALSE(study->world || study->local_world || study->batch_per_rank || study->pipeline ||
               study->free_share || study->dense);
  EXPECT_EQ(study->tables[0].optimizer, TableOptimizer::kRowwiseAdagrad);
  EXPECT_EQ(study->tables[0].element_bytes, 4);
}

TEST(StudyFile, DensePartsMayBeKnownTimes) {
  const auto study = read_sharding_study(folder().written(
      "times.json", std::string(kHead) +
                        R"("dense": {"forward_us": 900, "backward_us": 0, "parameter_bytes": 8e6},
                           "tables": [{"name": "a", "rows": 9, "dim": 4, "pooling": 1}]})"));
  ASSERT_TRUE(study) << to_string(study.error());
  EXPECT_EQ(study->dense->forward_us, 900);
  EXPECT_EQ(study->dense->backward_us, 0);
  EXPECT_EQ(study->dense->parameter_bytes, 8'000'000);
}

TEST(StudyFile, MayHaveAHashedArray) {
  const std::string tables = R"("tables": [{"name": "a", "rows": 9, "dim": 4, "pooling": 1}],)";
  const auto study = read_sharding_study(
      folder().written("hashed.json", std::string(kHead) + tables +
                                          R"("hashed": {"elements": 27e6, "chunk": 8, "dtype":
                           "fp16", "reference_kernel": false, "iterations_multiplier": 4.5}})"));
  ASSERT_TRUE(study) << to_string(study.error());
  ASSERT_TRUE(study->hashed);
  EXPECT_EQ(study->hashed->elements, 27e6);
  EXPECT_EQ(study->hashed->chunk, 8);
  EXPECT_EQ(study->hashed->element_bytes, 2);
  EXPECT_FALSE(study->hashed->reference_kernel);
  EXPECT_EQ(study->hashed->iterations_multiplier, 4.5);
  const auto error = [&](const std::string& members) {
    return error_of_members(tables + "\n\"hashed\": {" + members + "}");
  };
  EXPECT_EQ(error(""), "s.json:3:11: /hashed/elements: expected this key, found nothing");
  EXPECT_EQ(error("\"elements\": 0"),
            "s.json:3:24: /hashed/elements: expected a whole number of at least 1, found 0");
  EXPECT_EQ(error("\"elements\": 5, \"chunk\": 0.5"),
            "s.json:3:36: /hashed/chunk: expected a whole number of at least 1, found 0.5");
  EXPECT_EQ(error("\"elements\": 5, \"iterations_multiplier\": 0"),
            "s.json:3:52: /hashed/iterations_multiplier: expected a number above 0, found 0");
  EXPECT_EQ(error("\"elements\": 5, \"Z\": 8"),
            "s.json:3:32: /hashed/Z: expected no such key, found 8");
}

TEST(StudyFile, RefusesWhatIsWrongAroundTheTables) {
  const std::string tables = R"("tables": [{"name": "a", "rows": 9, "dim": 4, "pooling": 1}], )";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {tables + R"("wrold": 8)",
       R"(s.json:2:72: /wrold: expected no such key (but "world"), found 8)"},
      {tables + R"("world": 0)",
       "s.json:2:72: /world: expected a whole number of at least 1, found 0"},
      {tables + R"("world": "8")",
       R"(s.json:2:72: /world: expected a whole number of at least 1, found "8")"},
      {tables + R"("world": 12, "local_world": 8)",
       "s.json:2:91: /local_world: expected a divisor of world, 12, found 8"},
      {tables + R"("batch_per_rank": 1.5)",
       "s.json:2:81: /batch_per_rank: expected a whole number of at least 1, found 1.5"},
      {tables + R"("pipeline": "dist")",
       R"(s.json:2:75: /pipeline: expected one of "none", "sparse_dist", "prefetch", found "dist")"},
      {tables + R"("free_share": 1)",
       "s.json:2:77: /free_share: expected a share of at least 0, below 1, found 1"},
      {tables + R"("gpu": "")", R"(s.json:2:70: /gpu: expected a name, found "")"},
      {tables + R"("gpu": 4)", "s.json:2:70: /gpu: expected a string, found 4"},
      {tables + R"("dense": [])", "s.json:2:72: /dense: expected an object, found []"},
      {tables + R"("name": "a", "name": "b")",
       R"(s.json:2:76: expected each key once, found "name" again)"},
      {tables + R"("defaults": {"name": "x"})",
       R"(s.json:2:84: /defaults/name: expected no such key, found "x")"},
      {R"("tables": [])", "s.json:2:11: /tables: expected at least one table, found []"},
      {R"("world": 8)", "s.json:1:1: /tables: expected this key, found nothing"},
      {R"("tables": [3])", "s.json:2:12: /tables/0: expected an object, found 3"},
  };
  for (const auto& [members, message] : cases) EXPECT_EQ(error_of_members(members), message);
  EXPECT_EQ(error_of("s.json", "{\"schema\": \"perfmodel-gpu\"}"),
            "s.json:1:12: /schema: expected \"perfmodel-sharding-study\", found \"perfmodel-gpu\"");
  EXPECT_EQ(error_of("s.json", std::string(kHead.substr(0, kHead.size() - 3)) + "2}"),
            "s.json:1:50: /version: expected version 1, found 2, which needs a newer program");
  EXPECT_EQ(error_of("s.json", "{\n  \"schema\": ]"),
            "s.json:2:13: expected JSON, found something else here");
  EXPECT_EQ(error_of("s.yaml", ""),
            "s.yaml: expected a name that ends in .json or .csv, found \"s.yaml\"");
  EXPECT_EQ(folder().without_folder(read_sharding_study(folder().file("none.json")).error()),
            "none.json: expected a readable sharding study, found none");
}

TEST(StudyFile, RefusesWhatIsWrongWithATable) {
  const std::string sizes = R"("rows": 9, "dim": 4, "pooling": 1, )";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("dim": 4, "pooling": 1)",
       "s.json:2:12: /tables/0/rows: expected this key, found nothing"},
      {R"("rows": 9, "dim": 4)",
       "s.json:2:12: /tables/0/pooling: expected this key, found nothing"},
      {R"("rows": -9, "dim": 4, "pooling": 1)",
       "s.json:2:34: /tables/0/rows: expected a whole number of at least 1, found -9"},
      {R"("rows": 9, "dim": 0, "pooling": 1)",
       "s.json:2:44: /tables/0/dim: expected a whole number of at least 1, found 0"},
      {R"("rows": 9, "dim": 4, "pooling": 0)",
       "s.json:2:58: /tables/0/pooling: expected a number above 0, found 0"},
      {sizes + R"("features": [])",
       "s.json:2:58: /tables/0/pooling: expected pooling or features, not both, found 1"},
      {R"("rows": 9, "dim": 4, "features": [])",
       "s.json:2:59: /tables/0/features: expected at least one feature, found []"},
      {R"("rows": 9, "dim": 4, "features": [{"pooling": 1}, {"pooling": "x"}])",
       R"(s.json:2:88: /tables/0/features/1/pooling: expected a number above 0, found "x")"},
      {sizes + R"("colour": "red")",
       R"(s.json:2:71: /tables/0/colour: expected no such key, found "red")"},
      {sizes + R"("dtype": "fp12")",
       R"(s.json:2:70: /tables/0/dtype: expected an element type, the nearest is "fp32", found "fp12")"},
      {sizes + R"("dtype": "tf32")",
       R"(s.json:2:70: /tables/0/dtype: expected an element type, the nearest is "fp32", found "tf32")"},
      {sizes + R"("optimizer": "rowise_adagrad")",
       R"(s.json:2:74: /tables/0/optimizer: expected an optimizer, the nearest is "rowwise_adagrad", )"
       R"(found "rowise_adagrad")"},
      {sizes + R"("types": ["table_wise", "table"])",
       R"(s.json:2:85: /tables/0/types/1: expected a sharding type, the nearest is "table_wise", )"
       R"(found "table")"},
      {sizes + R"("kernels": ["uvm_caching"])",
       R"(s.json:2:73: /tables/0/kernels/0: expected a compute kernel, the nearest is )"
       R"("fused_uvm_caching", found "uvm_caching")"},
      {sizes + R"("types": [])",
       "s.json:2:70: /tables/0/types: expected at least one name, found []"},
      {sizes + R"("forbid_ranks": [-1])",
       "s.json:2:78: /tables/0/forbid_ranks/0: expected a whole number of at least 0, found -1"},
      {sizes + R"("weighted": 1)",
       "s.json:2:73: /tables/0/weighted: expected true or false, found 1"},
      {sizes + R"("min_columns": 0)",
       "s.json:2:76: /tables/0/min_columns: expected a whole number of at least 1, found 0"},
      {sizes + R"("zipf": {"exponent": -1})",
       "s.json:2:82: /tables/0/zipf/exponent: expected a number of at least 0, found -1"},
      {sizes + R"("zipf": {"shift": 1})",
       "s.json:2:69: /tables/0/zipf/exponent: expected this key, found nothing"},
      {sizes + R"("cache": {"load_factor": 1.5})",
       "s.json:2:86: /tables/0/cache/load_factor: expected a share above 0, at most 1, found 1.5"},
      {sizes + R"("cache": {"distances": [1]})",
       "s.json:2:70: /tables/0/cache/expected_lookups: expected this key, found nothing"},
      {sizes + R"("cache": {"expected_lookups": 5, "distances": [1, -1]})",
       "s.json:2:111: /tables/0/cache/distances/1: expected a number of at least 0, found -1"},
      {sizes + R"("wire": {"forward": 2})",
       "s.json:2:81: /tables/0/wire/forward: expected a string, found 2"},
      {sizes + R"("count": 0)",
       "s.json:2:70: /tables/0/count: expected a whole number of at least 1, found 0"},
      {sizes + R"("count": 1000001)",
       "s.json:2:21: /tables/0/name: expected at most 1000000 tables, found 1000001"},
  };
  for (const auto& [members, message] : cases) EXPECT_EQ(error_of_table(members), message);
}

TEST(StudyFile, TablesHaveNamesOfTheirOwn) {
  const std::string sizes = R"("rows": 9, "dim": 4, "pooling": 1})";
  EXPECT_EQ(error_of_members(R"("tables": [{"name": "a", )" + sizes + ",\n" + R"({"name": "a", )" +
                             sizes + "]"),
            R"(s.json:3:10: /tables/1/name: expected a name of its own, found "a" again)");
  EXPECT_EQ(error_of_members(R"("tables": [{"name": "a_1", )" + sizes + ",\n" +
                             R"({"name": "a", "count": 2, )" + sizes + "]"),
            R"(s.json:3:10: /tables/1/name: expected a name of its own, found "a_1" again)");
  EXPECT_EQ(error_of_members(R"("tables": [{"name": "", )" + sizes + "]"),
            R"(s.json:2:21: /tables/0/name: expected a name, found "")");
  EXPECT_EQ(error_of_members(R"("tables": [{)" + sizes + "]"),
            "s.json:2:12: /tables/0/name: expected this key, found nothing");
}

TEST(StudyFile, ForbiddenRanksAreOfTheJob) {
  EXPECT_EQ(error_of_members(R"("world": 4, "tables": [)"
                             R"({"name": "a", "rows": 9, "dim": 4, "pooling": 1, "count": 3},)"
                             "\n"
                             R"({"name": "b", "rows": 9, "dim": 4, "pooling": 1,)"
                             R"( "forbid_ranks": [3, 4]}])"),
            "s.json:3:1: /tables/1: expected ranks from 0 to 3, found 4");
}

TEST(StudyFile, RefusesWhatIsWrongWithTheDensePart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "s.json:3:10: /dense/top_mlp: expected this key, found nothing"},
      {R"("bottom_mlp": [13], "top_mlp": [1])",
       "s.json:3:25: /dense/bottom_mlp: expected the width of the dense features and those of the "
       "layers, found [13]"},
      {R"("top_mlp": [5, 2])",
       "s.json:3:22: /dense/top_mlp: expected widths of which the last is 1, found [5,2]"},
      {R"("top_mlp": [0, 1])",
       "s.json:3:23: /dense/top_mlp/0: expected a whole number of at least 1, found 0"},
      {R"("top_mlp": [1], "interaction": "cross")",
       R"(s.json:3:42: /dense/interaction: expected one of "dot", "concat", "average_pool", )"
       R"("low_rank_cross", found "cross")"},
      {R"("top_mlp": [1], "cross_rank": 8)",
       R"(s.json:3:41: /dense/cross_rank: expected it beside interaction "low_rank_cross" alone, )"
       "found 8"},
      {R"("top_mlp": [1], "interaction": "concat", "pool_stride": 8)",
       R"(s.json:3:67: /dense/pool_stride: expected it beside interaction "average_pool" alone, )"
       "found 8"},
      {R"("top_mlp": [1], "dtype": "int8")",
       R"(s.json:3:36: /dense/dtype: expected one of "float32", "tf32", "float16", "bfloat16", )"
       R"(found "int8")"},
      {R"("backward_us": 5)",
       "s.json:3:26: /dense/backward_us: expected it beside forward_us alone, found 5"},
      {R"("forward_us": -5)",
       "s.json:3:25: /dense/forward_us: expected a number of at least 0, found -5"},
      {R"("forward_us": 5, "top_mlp": [1])",
       "s.json:3:39: /dense/top_mlp: expected layers or forward_us, not both, found [1]"},
  };
  for (const auto& [members, message] : cases) EXPECT_EQ(error_of_dense(members), message);
}

TEST(StudyFile, TablesMayComeAsCsv) {
  const auto study = read_sharding_study(folder().written("t.csv",
                                                          "table,rows,dim,pooling\n"
                                                          "user,4e7,128,2.5\n"
                                                          "\n"
                                                          "item,10,64,1\n"));
  ASSERT_TRUE(study) << to_string(study.error());
  ASSERT_EQ(study->tables.size(), 2U);
  EXPECT_EQ(study->tables[0].name, "user");
  EXPECT_EQ(study->tables[0].rows, 40'000'000);
  EXPECT_EQ(study->tables[0].dim, 128);
  EXPECT_EQ(study->tables[0].features[0].pooling_factor, 2.5);
  EXPECT_EQ(study->tables[1].optimizer, TableOptimizer::kRowwiseAdagrad);

  const auto full = read_sharding_study(
      folder().written("f.csv",
                       "rows,dim,pooling,table,dtype,optimizer,zipf_exponent,weighted,count\n"
                       "10,4,1,a,fp16,sgd,1.1,true,2\n"
                       "10,4,1,b,,,,,\n"));
  ASSERT_TRUE(full) << to_string(full.error());
  ASSERT_EQ(full->tables.size(), 3U);
  EXPECT_EQ(full->tables[1].name, "a_1");
  EXPECT_EQ(full->tables[1].element_bytes, 2);
  EXPECT_EQ(full->tables[1].optimizer, TableOptimizer::kSgd);
  EXPECT_EQ(full->tables[1].skew.exponent, 1.1);
  EXPECT_TRUE(full->tables[1].weighted);
  EXPECT_EQ(full->tables[2].name, "b");
  EXPECT_EQ(full->tables[2].element_bytes, 4);
  EXPECT_FALSE(full->tables[2].weighted);
}

TEST(StudyFile, RefusesWhatIsWrongWithCsv) {
  const std::string head = "table,rows,dim,pooling,dtype,optimizer,zipf_exponent,weighted,count\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"table,rows,dim,poolings\n",
       R"(t.csv:1:16: poolings: expected a known column, the nearest is "pooling", found "poolings")"},
      {"table,rows,pooling\n", "t.csv:1:1: dim: expected this column, found none"},
      {"table,rows,dim,pooling\n", "t.csv: expected tables, found only a header"},
      {head + "a,0,4,1,,,,,\n",
       R"(t.csv:2:3: rows: expected a whole number of at least 1, found "0")"},
      {head + "a,5,4,-1,,,,,\n", R"(t.csv:2:7: pooling: expected a number above 0, found "-1")"},
      {head + ",5,4,1,,,,,\n", "t.csv:2:1: table: expected a name, found nothing"},
      {head + "a,5,4,1,fp15,,,,\n",
       R"(t.csv:2:9: dtype: expected an element type, the nearest is "fp16", found "fp15")"},
      {head + "a,5,4,1,,sdg,,,\n",
       R"(t.csv:2:10: optimizer: expected an optimizer, the nearest is "sgd", found "sdg")"},
      {head + "a,5,4,1,,,x,,\n",
       R"(t.csv:2:11: zipf_exponent: expected a number of at least 0, found "x")"},
      {head + "a,5,4,1,,,,yes,\n",
       R"(t.csv:2:12: weighted: expected 0, 1, false or true, found "yes")"},
      {head + "a,5,4,1,,,,,0\n",
       R"(t.csv:2:13: count: expected a whole number of at least 1, found "0")"},
      {head + "a,5,4,1,,,,,\na,5,4,1,,,,,\n",
       R"(t.csv:3:1: table: expected a name of its own, found "a" again)"},
      {head + "a,5,4\n", "t.csv:2:5: expected 9 cells, found 3"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(error_of("t.csv", text), message);
}

/// A model of models.json as a study.
Json study_of_model(const Json& model) {
  Json study = {{"schema", "perfmodel-sharding-study"}, {"version", 1}};
  int number = 0;
  for (const Json& group : model["tables"]) {
    Json features = Json::array();
    for (const Json& pooling : group["hotness"]) features.push_back({{"pooling", pooling}});
    study["tables"].push_back({{"name", "g" + std::to_string(number++)},
                               {"rows", group["rows"]},
                               {"dim", group["dim"]},
                               {"count", group["count"]},
                               {"features", features}});
  }
  return study;
}

TEST(StudyFile, HoldsThePublicModels) {
  const Json models = public_json("models.json");
  if (models.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const auto& [name, model] : models.items()) {
    SCOPED_TRACE(name);
    const auto study =
        read_sharding_study(folder().written("m.json", study_of_model(model).dump(1)));
    ASSERT_TRUE(study) << to_string(study.error());
    std::size_t tables = 0;
    double elements = 0, read = 0;
    for (const Json& group : model["tables"]) {
      const auto count = group["count"].get<std::size_t>();
      tables += count;
      elements +=
          static_cast<double>(count) * group["rows"].get<double>() * group["dim"].get<double>();
    }
    for (const ShardedTable& table : study->tables) {
      read += static_cast<double>(table.rows) * static_cast<double>(table.dim);
    }
    EXPECT_EQ(study->tables.size(), tables);
    EXPECT_DOUBLE_EQ(read, elements);
  }
}

TEST(StudyFile, HoldsThePublicTableList) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (data == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto study =
      read_sharding_study(std::filesystem::path(data) / "sharding/torchrec_timing_tables.csv");
  ASSERT_TRUE(study) << to_string(study.error());
  ASSERT_EQ(study->tables.size(), 1000U);
  EXPECT_EQ(study->tables[0].rows, 9793);
  EXPECT_EQ(study->tables[1].name, "1");
  EXPECT_EQ(study->tables[1].features[0].pooling_factor, 10.95);
}

}  // namespace sharding_study_file_test
}  // namespace perfmodel::sharding
