// Tables found in graphs: in built ones and in recordings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "sharding/tables_in_graph.hpp"

namespace perfmodel::sharding {
namespace sharding_tables_in_graph_test {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

DlrmConfig config_of(std::vector<EmbeddingTable> tables, bool batched) {
  DlrmConfig config;
  config.bottom_mlp = {13, 32, 16};
  config.top_mlp = {8, 1};
  config.tables = std::move(tables);
  config.batch = 64;
  config.table_batched = batched;
  return config;
}

GraphTables found_in(const DlrmConfig& config) {
  const auto graph = build_dlrm(config);
  EXPECT_TRUE(graph) << to_string(graph.error());
  auto found = tables_in_graph(*graph);
  EXPECT_TRUE(found) << to_string(found.error());
  return std::move(*found);
}

TEST(TablesInGraph, LayersAreKnown) {
  using Interaction = DensePart::Interaction;
  DlrmConfig config = config_of({{1000, 16, 2}, {7, 16, 1}, {50, 16, 1}}, true);
  config.bottom_mlp = {13, 32, 16};
  config.top_mlp = {64, 8, 1};
  const auto dot = found_in(config).dense;
  ASSERT_TRUE(dot);
  EXPECT_THAT(dot->bottom_mlp, ElementsAre(13, 32, 16));
  EXPECT_THAT(dot->top_mlp, ElementsAre(64, 8, 1));
  EXPECT_EQ(dot->interaction, Interaction::kDot);
  config.interaction_dot = false;
  EXPECT_EQ(found_in(config).dense->interaction, Interaction::kConcatenation);
  config.cross = {.layers = 2, .rank = 24};
  const auto crossed = found_in(config).dense;
  EXPECT_EQ(crossed->interaction, Interaction::kLowRankCross);
  EXPECT_EQ(crossed->cross_layers, 2);
  EXPECT_EQ(crossed->cross_rank, 24);
  EXPECT_THAT(crossed->top_mlp, ElementsAre(64, 8, 1));
}

TEST(TablesInGraph, SingleTablesAreKnownExactly) {
  for (bool sparse : {true, false}) {
    DlrmConfig config = config_of({{1000, 16, 2}, {7, 16, 1}, {50, 16, 0.5}}, false);
    config.sparse_gradients = sparse;
    const GraphTables found = found_in(config);
    ASSERT_EQ(found.tables.size(), 3U);
    EXPECT_EQ(found.batch, 64);
    EXPECT_THAT(found.warnings, IsEmpty());
    const double poolings[] = {2, 1, 0.5};
    for (std::size_t t = 0; t < 3; ++t) {
      const ShardedTable& table = found.tables[t];
      EXPECT_EQ(table.name, "table_" + std::to_string(t));
      EXPECT_EQ(table.rows, config.tables[t].num_rows);
      EXPECT_EQ(table.dim, 16);
      EXPECT_EQ(table.element_bytes, 4);
      EXPECT_EQ(table.optimizer, TableOptimizer::kSgd);
      EXPECT_TRUE(table.pooled && !table.weighted && !table.output_bytes);
      ASSERT_EQ(table.features.size(), 1U);
      EXPECT_EQ(table.features[0].pooling_factor, poolings[t]);
      EXPECT_FALSE(table.features[0].batch);
    }
  }
}

TEST(TablesInGraph, BatchedTablesShareTheSums) {
  DlrmConfig config = config_of({{1000, 16, 2}, {7, 16, 1}, {51, 16, 3}}, true);
  using Optimizer = DlrmConfig::Optimizer;
  for (const auto& [given, expected] :
       {std::pair{Optimizer::kSgd, TableOptimizer::kSgd},
        {Optimizer::kAdagrad, TableOptimizer::kAdagrad},
        {Optimizer::kRowwiseAdagrad, TableOptimizer::kRowwiseAdagrad},
        {Optimizer::kAdam, TableOptimizer::kAdam}}) {
    config.optimizer = given;
    const GraphTables found = found_in(config);
    ASSERT_EQ(found.tables.size(), 3U);
    EXPECT_EQ(found.batch, 64);
    ASSERT_EQ(found.warnings.size(), 1U);
    EXPECT_THAT(found.warnings[0],
                ::testing::MatchesRegex("3 tables are read at once \\(node [0-9]+\\): only the "
                                        "sums of their rows \\(1058\\) and ids are known, each "
                                        "table gets its share"));
    EXPECT_EQ(found.tables[0].rows, 353);  // 1058 = 2 x 353 + 352
    EXPECT_EQ(found.tables[1].rows, 353);
    EXPECT_EQ(found.tables[2].rows, 352);
    for (const ShardedTable& table : found.tables) {
      EXPECT_EQ(table.dim, 16);
      EXPECT_EQ(table.optimizer, expected);
      EXPECT_EQ(table.features.at(0).pooling_factor, 2);
      EXPECT_TRUE(table.pooled);
    }
  }
}

TEST(TablesInGraph, OneBatchedTableIsKnownExactly) {
  const GraphTables found = found_in(config_of({{1000, 16, 2.5}}, true));
  ASSERT_EQ(found.tables.size(), 1U);
  EXPECT_EQ(found.tables[0].rows, 1000);
  EXPECT_EQ(found.tables[0].dim, 16);
  EXPECT_EQ(found.tables[0].features[0].pooling_factor, 2.5);
  EXPECT_THAT(found.warnings, IsEmpty());
}

TEST(TablesInGraph, SkewOfTheIndicesIsKept) {
  const auto skewed = set_index_skew(build_dlrm(config_of({{1000, 16, 2}}, false)).value(), 1.05);
  ASSERT_TRUE(skewed);
  EXPECT_EQ(tables_in_graph(*skewed)->tables[0].skew.exponent, 1.05);
}

TEST(TablesInGraph, PlainLookupsHaveNoBags) {
  BertConfig config = bert_preset("bert-base").value();
  const auto graph = build_bert(config);
  ASSERT_TRUE(graph) << to_string(graph.error());
  const auto found = tables_in_graph(*graph);
  ASSERT_TRUE(found) << to_string(found.error());
  ASSERT_GE(found->tables.size(), 2U);
  EXPECT_FALSE(found->tables[0].pooled);
  EXPECT_EQ(found->tables[0].rows, config.vocabulary);
  EXPECT_EQ(found->tables[0].dim, config.hidden);
  // Attention has batched products, but no layers of a recommender.
  EXPECT_FALSE(found->dense);
  EXPECT_THAT(found->warnings,
              Contains(::testing::StartsWith("layers: not understood, left out: ")));
}

TEST(TablesInGraph, RefusesGraphsWithoutLookups) {
  const auto found = tables_in_graph(ExecutionGraph{});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, "expected lookups in embedding tables, found none");
}

GraphTables found_in_public(const std::string& name) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  const auto graph = read_execution_graph(std::filesystem::path(data) / name);
  EXPECT_TRUE(graph) << to_string(graph.error());
  auto found = tables_in_graph(*graph);
  EXPECT_TRUE(found) << to_string(found.error());
  return std::move(*found);
}

TEST(TablesInGraph, RecordingsOfSingleTables) {
  if (!std::getenv("PERFMODEL_PUBLIC_DATA")) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const char* name :
       {"traces_cpu/dlrm_dense_sgd.et.json.gz", "traces_cpu/dlrm_sparse_sgd.et.json.gz"}) {
    SCOPED_TRACE(name);
    const GraphTables found = found_in_public(name);
    EXPECT_THAT(found.warnings, IsEmpty());
    EXPECT_EQ(found.batch, 64);
    std::vector<std::int64_t> rows;
    for (const ShardedTable& table : found.tables) {
      rows.push_back(table.rows);
      EXPECT_EQ(table.dim, 16);
      EXPECT_EQ(table.optimizer, TableOptimizer::kSgd);
      EXPECT_EQ(table.features.at(0).pooling_factor, 8);
    }
    EXPECT_THAT(rows, ElementsAre(1000, 2000, 500, 4000));
  }
}

// Three tables of its own per rank, by the samples of all 8; two small ones on every rank.
TEST(TablesInGraph, RecordingsOfBatchedTables) {
  if (!std::getenv("PERFMODEL_PUBLIC_DATA")) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const std::int64_t total_rows[] = {40040603, 40021241, 40017450, 40013081};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const GraphTables found =
        found_in_public("traces/dlrm_v100_rank" + std::to_string(rank) + "of8_et.json.gz");
    ASSERT_EQ(found.tables.size(), 5U);
    std::int64_t own = 0, shared = 0;
    for (std::size_t t = 0; t < 5; ++t) {
      const ShardedTable& table = found.tables[t];
      (t < 3 ? own : shared) += table.rows;
      EXPECT_EQ(table.dim, 16);
      EXPECT_EQ(table.optimizer, TableOptimizer::kAdagrad);
    }
    EXPECT_EQ(own, total_rows[rank]);
    EXPECT_EQ(shared, 7);
    EXPECT_EQ(found.batch, 16);
    ASSERT_EQ(found.warnings.size(), 3U);
    EXPECT_EQ(found.warnings[2],
              "the graph is one of 8 ranks: tables that only others have are not in it");
  }
}

}  // namespace sharding_tables_in_graph_test
}  // namespace perfmodel::sharding
