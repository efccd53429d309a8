#include "perfmodel/graph/build_recommenders.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>

#include "../scratch.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace build_torchrec_dlrm_test {

constexpr std::int64_t kRecordedFirstCollective = 147;

ExecutionGraph recorded_rank(std::int64_t rank) {
  const auto file = std::filesystem::path(std::getenv("PERFMODEL_PUBLIC_DATA")) / "traces" /
                    ("dlrm_v100_rank" + std::to_string(rank) + "of8_et.json.gz");
  auto graph = read_execution_graph(file);
  EXPECT_TRUE(graph) << to_string(graph.error());
  return graph.value();
}

TorchrecDlrmConfig config_of_rank(std::int64_t rank) {
  TorchrecDlrmConfig config = torchrec_dlrm_preset("v100-8").value();
  config.rank = rank;
  return config;
}

ExecutionGraph build(const TorchrecDlrmConfig& config) {
  auto graph = build_torchrec_dlrm(config);
  EXPECT_TRUE(graph) << to_string(graph.error());
  return graph.value();
}

// Three ranks of two, one and one tables, one table on all.
TorchrecDlrmConfig small_config(std::int64_t rank) {
  TorchrecDlrmConfig config;
  config.bottom_mlp = {4, 8};
  config.top_mlp = {6, 1};
  config.tables = {{100, 8, 3, 1}, {50, 8, 1, 0}, {7, 8, 2, -1}, {60, 8, 2.5, 0}, {40, 8, 4, 2}};
  config.batch_per_rank = 6;
  config.world_size = 3;
  config.rank = rank;
  return config;
}

std::vector<const CommRecord*> collectives(const ExecutionGraph& graph, std::string_view kind) {
  std::vector<const CommRecord*> found;
  for (const Node& node : graph.nodes) {
    if (node.comm < 0) continue;
    const CommRecord& record = graph.comm_records[static_cast<std::size_t>(node.comm)];
    if (record.collective == kind) found.push_back(&record);
  }
  return found;
}

// Not in a graph from nowhere: the address of the process group, and 1e-8 in six decimals.
bool differs_in_numbers(const ExecutionGraph& graph, const Node& node) {
  const std::string_view name = graph.name(node);
  return name == "record_param_comms" ||
         name == "fbgemm::split_embedding_codegen_lookup_adagrad_function";
}

TEST(BuildTorchrecDlrm, RanksAreTheRecordedOnesOpByOp) {
  if (std::getenv("PERFMODEL_PUBLIC_DATA") == nullptr) {
    GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  }
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    TorchrecDlrmConfig config = config_of_rank(rank);
    config.first_collective = kRecordedFirstCollective;
    const ExecutionGraph recorded = recorded_rank(rank), built = build(config);
    const GraphComparison shapes = compare_graphs(recorded, built, {.scalars = false});
    EXPECT_TRUE(shapes.same()) << "rank " << rank << "\n" << shapes;
    const GraphComparison numbers =
        compare_graphs(recorded, built, {.flatten = differs_in_numbers});
    EXPECT_TRUE(numbers.same()) << "rank " << rank << "\n" << numbers;
  }
}

TEST(BuildTorchrecDlrm, WhatOneRankSendsAnotherReceives) {
  std::vector<ExecutionGraph> ranks;
  for (std::int64_t rank = 0; rank < 3; ++rank) ranks.push_back(build(small_config(rank)));
  constexpr std::size_t kExchanges = 4;  // vectors, lengths, indices, gradients
  for (std::size_t from = 0; from < 3; ++from) {
    const auto sent = collectives(ranks[from], "all_to_allv");
    ASSERT_EQ(sent.size(), kExchanges);
    for (std::size_t to = 0; to < 3; ++to) {
      const auto received = collectives(ranks[to], "all_to_allv");
      for (std::size_t i = 0; i < kExchanges; ++i) {
        EXPECT_EQ(sent[i]->in_splits[to], received[i]->out_splits[from])
            << "exchange " << i << " from " << from << " to " << to;
      }
    }
  }
  // Rank 0 has two tables of dim 8: 6 samples x 16 numbers go to each rank; 1 + 2.5 lookups.
  const auto exchanges = collectives(ranks[0], "all_to_allv");
  EXPECT_EQ(exchanges[0]->in_splits, (std::vector<std::int64_t>{96, 96, 96}));
  EXPECT_EQ(exchanges[0]->out_splits, (std::vector<std::int64_t>{96, 48, 48}));
  EXPECT_EQ(exchanges[2]->in_splits, (std::vector<std::int64_t>{21, 18, 24}));
  EXPECT_EQ(exchanges[2]->out_splits, (std::vector<std::int64_t>{21, 21, 21}));
  EXPECT_EQ(collectives(ranks[0], "allreduce").size(), 2U);  // the table on all ranks, MLPs
}

TEST(BuildTorchrecDlrm, ParametersAreThoseOfTheTablesHereAndOfTheMlps) {
  // MLPs 4-8 and (8 + 15)-6-1; tables of 50 and 60 rows here, 7 rows everywhere.
  const std::int64_t mlps = 4 * 8 + 8 + (8 + 6 * 5 / 2) * 6 + 6 + 6 + 1;
  EXPECT_EQ(model_size(build(small_config(0))).parameters, mlps + (50 + 60 + 7) * 8);
  EXPECT_EQ(model_size(build(small_config(1))).parameters, mlps + (100 + 7) * 8);
}

TEST(BuildTorchrecDlrm, WithoutReplicatedTablesOneReducerIsLeft) {
  TorchrecDlrmConfig config = small_config(1);
  config.tables[2].rank = 1;
  const ExecutionGraph graph = build(config);
  EXPECT_EQ(collectives(graph, "allreduce").size(), 1U);
  for (const Node& node : graph.nodes) {
    EXPECT_NE(graph.name(node), "fbgemm::dense_embedding_codegen_lookup_function");
  }
}

TEST(BuildTorchrecDlrm, CollectivesSurviveWritingAndReading) {
  const ExecutionGraph built = build(small_config(2));
  const auto file = test_support::scratch() / "torchrec_rank.json";
  ASSERT_TRUE(write_execution_graph(built, file));
  const auto read = read_execution_graph(file);
  ASSERT_TRUE(read) << to_string(read.error());
  ASSERT_EQ(read->comm_records.size(), built.comm_records.size());
  for (std::size_t i = 0; i < built.comm_records.size(); ++i) {
    const CommRecord &a = built.comm_records[i], &b = read->comm_records[i];
    EXPECT_EQ(a.collective, b.collective);
    EXPECT_EQ(a.sequence, b.sequence);
    EXPECT_EQ(a.process_group, b.process_group);
    EXPECT_EQ(a.group_size, b.group_size);
    EXPECT_EQ(a.in_splits, b.in_splits);
    EXPECT_EQ(a.out_splits, b.out_splits);
  }
}

TEST(BuildTorchrecDlrm, BadConfigsAreRefusedByName) {
  const auto message = [](const std::function<void(TorchrecDlrmConfig&)>& spoil) {
    TorchrecDlrmConfig config = small_config(0);
    spoil(config);
    const auto graph = build_torchrec_dlrm(config);
    return graph ? std::string("built") : graph.error().message;
  };
  using Config = TorchrecDlrmConfig;
  EXPECT_EQ(message([](Config&) {}), "built");
  EXPECT_EQ(message([](Config& c) { c.world_size = 1; }),
            "world size: expected 2 to 65536, found 1");
  EXPECT_EQ(message([](Config& c) { c.rank = 3; }), "rank: expected 0 to 2, found 3");
  EXPECT_EQ(message([](Config& c) { c.batch_per_rank = 0; }),
            "batch per rank: expected 1 to 16777216, found 0");
  EXPECT_EQ(message([](Config& c) { c.tables[4].rank = 3; }),
            "table 4: expected a rank below 3, or -1 for all of them, found 3");
  EXPECT_EQ(message([](Config& c) { c.tables[0].dim = 4; }),
            "table 0: expected dim 8, the last width of the bottom MLP, found 4");
  EXPECT_EQ(message([](Config& c) { c.tables[1].num_rows = 0; }),
            "table 1, rows: expected 1 to 1099511627776, found 0");
  EXPECT_EQ(message([](Config& c) { c.tables[1].pooling_factor = 0; }),
            "table 1: expected a pooling factor above 0 and up to 1e6, found 0");
  EXPECT_EQ(message([](Config& c) {
              for (PlacedTable& table : c.tables) table.rank = PlacedTable::kDataParallel;
            }),
            "tables: expected at least one that is sharded, found none");
  EXPECT_EQ(message([](Config& c) { c.top_mlp = {3}; }),
            "top MLP: expected a last width of 1, found 3");
  EXPECT_EQ(message([](Config& c) { c.bottom_mlp = {8}; }),
            "bottom MLP: expected at least 2 widths, found 1");
  const auto unknown = torchrec_dlrm_preset("v100");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "expected a TorchRec preset (v100-8), found \"v100\"");
}

}  // namespace build_torchrec_dlrm_test
}  // namespace perfmodel
