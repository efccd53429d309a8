// All ranks of a job whose tables are sharded in every way, built and predicted together.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "../graph/torchrec_plans.hpp"
#include "../scratch.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "perfmodel/predict.hpp"
#include "sharding/sharded_graph.hpp"

namespace perfmodel {
namespace sharding_rank_graphs_test {

using test_support::column_pieces;
using test_support::row_blocks;

class RankGraphs : public ::testing::Test {
 protected:
  RankGraphs() {
    const std::filesystem::path data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
    table_ = read_overheads(data / "overheads" / "reference.json").value();
    gpu_ = find_gpu("a100-sxm-80gb", data / "gpus").value();
  }

  // The graphs outlive the prediction, which names their ops.
  JobPrediction predict_all(TorchrecDlrmConfig config) {
    graphs_.clear();
    for (config.rank = 0; config.rank < config.world_size; ++config.rank) {
      graphs_.push_back(build_torchrec_dlrm(config).value());
    }
    return predict_graphs();
  }

  JobPrediction predict_graphs() const {
    std::vector<RankInput> inputs;
    for (const ExecutionGraph& graph : graphs_) {
      inputs.push_back({.graph = &graph, .table = &table_});
    }
    auto job = predict_job(inputs, gpu_);
    if (!job) {
      ADD_FAILURE() << to_string(job.error());
      return {};
    }
    return std::move(*job);
  }

  // Times of the collectives in the ops of that name, in order.
  std::vector<double> times(const JobPrediction& job, std::size_t rank, std::string_view op) const {
    std::vector<double> found;
    for (const PredictedOp& at : job.ranks[rank].ops) {
      if (at.name != op) continue;
      for (const PredictedKernel& kernel : at.kernels) {
        if (kernel.family == KernelFamily::kCollective) found.push_back(kernel.price.time.count());
      }
    }
    return found;
  }

  OverheadTable table_;
  Gpu gpu_;
  std::vector<ExecutionGraph> graphs_;
};

std::map<std::string, std::size_t> unmodelled(const Prediction& prediction) {
  std::map<std::string, std::size_t> ops;
  for (const auto& op : prediction.coverage.unmodelled_ops) ops[op.op] = op.count;
  return ops;
}

std::size_t collectives(const Prediction& prediction) {
  std::size_t count = 0;
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      count += kernel.family == KernelFamily::kCollective;
    }
  }
  return count;
}

TEST_F(RankGraphs, ArePredictedTogether) {
  const JobPrediction job = predict_all(test_support::every_sharding(0));
  ASSERT_EQ(job.ranks.size(), 8U);
  EXPECT_TRUE(job.warnings.empty()) << job.warnings.front();
  for (const Prediction& rank : job.ranks) {
    EXPECT_TRUE(unmodelled(rank).empty()) << unmodelled(rank).begin()->first;
    EXPECT_GT(rank.e2e_us, 0);
  }
  // 6 groups, 2 of them over hosts: sizes, lengths, values, vectors and gradients; 2 reducers.
  EXPECT_EQ(collectives(job.ranks[0]), 36U);
}

TEST_F(RankGraphs, ArePredictedAlikeFromFiles) {
  const JobPrediction built = predict_all(test_support::every_sharding(0));
  std::vector<ExecutionGraph> read;
  for (const ExecutionGraph& graph : graphs_) {
    const auto file = test_support::scratch() / "sharding_rank_graph.json.gz";
    ASSERT_TRUE(write_execution_graph(graph, file));
    read.push_back(read_execution_graph(file).value());
  }
  graphs_ = std::move(read);
  const JobPrediction job = predict_graphs();
  ASSERT_EQ(job.ranks.size(), built.ranks.size());
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    EXPECT_NEAR(job.ranks[i].e2e_us, built.ranks[i].e2e_us, 1e-6 * built.ranks[i].e2e_us);
    EXPECT_NEAR(job.ranks[i].comm_kernel_us, built.ranks[i].comm_kernel_us,
                1e-6 * built.ranks[i].comm_kernel_us);
  }
}

// 2 hosts of 8 GPUs, as the topology of this GPU has them; samples enough to need the links.
TorchrecDlrmConfig two_nodes(TableSharding sharding, std::vector<TableShard> shards) {
  TorchrecDlrmConfig config;
  config.bottom_mlp = {13, 128};
  config.top_mlp = {64, 1};
  config.batch_per_rank = 4096;
  config.world_size = 16;
  config.local_world_size = 8;
  config.tables = {{.num_rows = 1'000'000,
                    .dim = 128,
                    .pooling_factor = 10,
                    .shards = std::move(shards),
                    .sharding = sharding}};
  return config;
}

TEST_F(RankGraphs, RowsOfAHostAreAddedUpInside) {
  constexpr std::string_view kAdd = "ReduceScatterBase_Req";
  const JobPrediction rows =
      predict_all(two_nodes(TableSharding::kRowWise, row_blocks(1'000'000, 0, 128, 0, 16)));
  const auto everywhere = times(rows, 8, kAdd);
  const JobPrediction host_rows =
      predict_all(two_nodes(TableSharding::kTableRowWise, row_blocks(1'000'000, 0, 128, 8, 8)));
  const auto inside = times(host_rows, 8, kAdd);
  ASSERT_EQ(everywhere.size(), 1U);
  ASSERT_EQ(inside.size(), 1U);
  // 16 x 4096 x 128 x 4 B = 34 MB: over 8 NICs of 25 GB/s or over NVSwitch.
  EXPECT_LT(inside[0], everywhere[0]);
}

TEST_F(RankGraphs, PairsAcrossHostsUseTheNetwork) {
  const JobPrediction job =
      predict_all(two_nodes(TableSharding::kTableRowWise, row_blocks(1'000'000, 0, 128, 8, 8)));
  // The vectors, first of all: 2 x 4096 x 128 x 4 B from each rank of host 1, half of it to the
  // other host. One NIC of 25 GB/s per GPU takes 84 us, 300 GB/s of NVLink would take 7.
  const auto exchanged = times(job, 8, "All2All_Pooled_Req");
  ASSERT_FALSE(exchanged.empty());
  EXPECT_GT(exchanged[0], 80);
}

TEST_F(RankGraphs, WhoHoldsTheTableIsSlowest) {
  const JobPrediction job =
      predict_all(two_nodes(TableSharding::kColumnWise, column_pieces(1'000'000, 64, {3, 3})));
  for (std::size_t rank = 0; rank < 16; ++rank) {
    if (rank == 3) continue;
    EXPECT_LT(job.ranks[rank].compute_kernel_us, job.ranks[3].compute_kernel_us);
  }
}

// The configuration of the graphs has the plan's placements, offsets included.
TEST(ShardedGraph, ShardsLieWhereThePlanPutsThem) {
  using sharding::ShardingType;
  sharding::ShardingStudy study;
  study.world = 8;
  study.local_world = 4;
  study.batch_per_rank = 6;
  study.dense = sharding::DensePart{.bottom_mlp = {4, 16}, .top_mlp = {6, 1}};
  const std::vector<sharding::TablePlacement> placements = {
      {.type = ShardingType::kDataParallel, .kernel = sharding::ComputeKernel::kDense},
      {.type = ShardingType::kTableWise, .ranks = {3}},
      {.type = ShardingType::kColumnWise, .ranks = {6, 2}},
      {.type = ShardingType::kTableColumnWise, .ranks = {0, 1, 2, 3}, .least_columns = 4},
      {.type = ShardingType::kRowWise, .ranks = {0, 1, 2, 3, 4, 5, 6, 7}},
      {.type = ShardingType::kTableRowWise, .ranks = {4, 5, 6, 7}},
      {.type = ShardingType::kGrid, .ranks = {4, 5, 6, 7, 0, 1, 2, 3}}};
  for (std::size_t i = 0; i < placements.size(); ++i) {
    study.tables.push_back(
        {.name = "t" + std::to_string(i), .rows = 90, .dim = 16, .least_columns = 8});
  }
  const auto config = sharding::sharded_dlrm(study, placements);
  ASSERT_TRUE(config) << to_string(config.error());
  ASSERT_EQ(config->tables.size(), placements.size());
  EXPECT_EQ(config->tables[0].kind(), TableSharding::kDataParallel);
  EXPECT_EQ(config->tables[1].kind(), TableSharding::kTableWise);
  EXPECT_EQ(config->tables[1].rank, 3);
  EXPECT_EQ(config->tables[2].shards, column_pieces(90, 8, {6, 2}));
  EXPECT_EQ(config->tables[3].shards, column_pieces(90, 4, {0, 1, 2, 3}));
  EXPECT_EQ(config->tables[4].shards, row_blocks(90, 0, 16, 0, 8));
  EXPECT_EQ(config->tables[5].shards, row_blocks(90, 0, 16, 4, 4));
  auto grid = row_blocks(90, 0, 8, 4, 4);
  for (const TableShard& shard : row_blocks(90, 8, 8, 0, 4)) grid.push_back(shard);
  EXPECT_EQ(config->tables[6].shards, grid);
  const auto graph = build_torchrec_dlrm(*config);
  EXPECT_TRUE(graph) << to_string(graph.error());
}

}  // namespace sharding_rank_graphs_test
}  // namespace perfmodel
