// One plan has one price: BatchModel says the same as a prediction of the graphs of its ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/rank_plans.hpp"
#include "random_studies.hpp"
#include "sharding/sharded_graph.hpp"
#include "sharding/torchrec_step.hpp"

namespace perfmodel::sharding {
namespace sharding_agreement_test {

using random_studies::Studies;

Launching launching_of(Launch launch) {
  return launch == Launch::kEager    ? Launching::kEager
         : launch == Launch::kGraphs ? Launching::kCudaGraphs
                                     : Launching::kCompiled;
}

class Agreement : public ::testing::Test {
 protected:
  void set(const ShardingStudy& study) {
    const std::filesystem::path data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
    gpu_ = find_gpu(study.gpu, data / "gpus").value();
    topology_ = topology_for(gpu_);
    table_ = read_overheads(data / "overheads" / "reference.json").value();
  }

  double evaluated_us(const ShardingStudy& study, const std::vector<TablePlacement>& plan) const {
    BatchOptions options;
    options.step =
        torchrec_step(study, gpu_, topology_, options, table_, launching_of(*study.launch)).value();
    return BatchModel::make(study, gpu_, topology_, options).value().time(plan)->predicted_us;
  }

  double predicted_us(const ShardingStudy& study, const std::vector<TablePlacement>& plan) const {
    TorchrecDlrmConfig config = sharded_dlrm(study, plan).value();
    std::vector<ExecutionGraph> graphs;
    for (config.rank = 0; config.rank < config.world_size; ++config.rank) {
      graphs.push_back(graph_of_rank(config, study).value());
    }
    std::vector<RankInput> inputs;
    for (const ExecutionGraph& graph : graphs) {
      inputs.push_back({.graph = &graph, .table = &table_});
      inputs.back().options.launching = launching_of(*study.launch);
      inputs.back().options.step_range = false;
    }
    return predict_job(inputs, gpu_).value().ranks.front().e2e_us;
  }

  Gpu gpu_;
  Topology topology_;
  OverheadTable table_;
};

// The bound of a search and its choice, against plans at random.
TEST_F(Agreement, NoPlanIsBelowTheBound) {
  Studies made(7);
  std::size_t plans = 0;
  double gap = 0;
  constexpr int kStudies = 6, kPlans = 20;
  for (int i = 0; i < kStudies; ++i) {
    ShardingStudy study = made.study();
    set(study);
    study.local_world = std::min<std::int64_t>(*study.world, topology_.gpus_per_node);
    BatchOptions options;
    options.step =
        torchrec_step(study, gpu_, topology_, options, table_, launching_of(*study.launch)).value();
    const BatchModel model = BatchModel::make(study, gpu_, topology_, options).value();
    const auto found = rank_plans(model, {.time_budget_s = 2});
    ASSERT_TRUE(found) << to_string(found.error());
    const double best = found->plans.front().time.predicted_us;
    gap += 1 - found->lower_bound_us / best;
    for (int k = 0; k < kPlans; ++k) {
      const BatchTime time = model.time(made.plan(study)).value();
      if (!time.ranks_over_memory.empty()) continue;
      ++plans;
      EXPECT_GE(time.predicted_us, found->lower_bound_us);
      EXPECT_LE(best, 1.02 * time.predicted_us);
    }
  }
  std::printf("%zu plans, mean gap to the bound %.1f %%\n", plans, 100 * gap / kStudies);
}

TEST_F(Agreement, TablesMayHaveAnyWidth) {
  ShardingStudy study = Studies(3).study();
  set(study);
  study.world = study.local_world = 4;
  study.dense->bottom_mlp.back() = 10;
  for (ShardedTable& table : study.tables) table.dim = 10;
  const auto step = torchrec_step(study, gpu_, topology_, {}, table_, Launching::kEager);
  ASSERT_TRUE(step) << to_string(step.error());
  EXPECT_TRUE(step->has_layers);
}

// Late ranks delay all all-reduces of a step.
TEST_F(Agreement, LateRanksDelayReductions) {
  ShardingStudy study = Studies(3).study();
  set(study);
  study.world = study.local_world = 4;
  BatchOptions options;
  options.step = torchrec_step(study, gpu_, topology_, options, table_, Launching::kEager).value();
  std::vector<TablePlacement> plan(study.tables.size());
  plan[0] = {.type = ShardingType::kDataParallel, .kernel = ComputeKernel::kDense};
  for (std::size_t t = 1; t < plan.size(); ++t) plan[t].ranks = {0};
  const auto parts = [&] {
    return BatchModel::make(study, gpu_, topology_, options)->time(plan)->ranks[0].parts;
  };
  const PartTimes before = parts();
  study.network.peer_us = 100;
  const PartTimes late = parts();
  for (const BatchPart part : {BatchPart::kTableReduce, BatchPart::kAllReduce}) {
    EXPECT_NEAR(late[part] - before[part], 300, 1e-6);
  }
}

// A rank cuts its gradient once for each rank that sends it vectors, however many tables there are.
TEST_F(Agreement, HostWorkGrowsWithRanksThatSend) {
  ShardingStudy study = Studies(5).study();
  study.gpu = "h100-sxm-80gb";
  study.launch = Launch::kEager;
  set(study);
  study.world = 128;
  study.local_world = 8;
  study.batch_per_rank = 64;
  study.dense->dtype = "float32";
  study.tables = std::vector<ShardedTable>(160, ShardedTable(study.tables.front()));
  const auto plan_of = [&](std::int64_t senders) {
    std::vector<TablePlacement> plan(study.tables.size(), {.type = ShardingType::kRowWise});
    for (std::size_t t = 0; t < plan.size() && senders > 0; ++t) {
      const auto rank = static_cast<std::int64_t>(t) % senders;
      plan[t] = {.type = ShardingType::kTableWise, .ranks = {rank}};
    }
    return plan;
  };
  PredictOptions options;
  options.topology = &topology_;
  for (const std::int64_t senders : {0, 16, 128}) {
    const auto config = sharded_dlrm(study, plan_of(senders)).value();  // for rank 0
    const double predicted =
        predict(graph_of_rank(config, study).value(), gpu_, table_, options).value().e2e_us;
    const double evaluated = evaluated_us(study, plan_of(senders));
    std::printf("%d ranks send: %.0f us for %.0f\n", static_cast<int>(senders), evaluated,
                predicted);
    EXPECT_NEAR(evaluated / predicted, 1, 0.1);
  }
}

// 200 studies with PERFMODEL_AGREEMENT_STUDIES=200.
TEST_F(Agreement, PlansTakeAsLongAsTheirGraphs) {
  const char* asked = std::getenv("PERFMODEL_AGREEMENT_STUDIES");
  const int studies = asked ? std::stoi(asked) : 24;
  Studies made(61);
  std::vector<double> errors;
  for (int i = 0; i < studies; ++i) {
    ShardingStudy study = made.study();
    set(study);
    study.local_world = std::min<std::int64_t>(*study.world, topology_.gpus_per_node);
    const std::vector<TablePlacement> plan = made.plan(study);
    const double evaluated = evaluated_us(study, plan), predicted = predicted_us(study, plan);
    errors.push_back(std::abs(evaluated / predicted - 1));
    std::printf(
        "%3d %-14s %2d GPUs, batch %4d, %3zu tables, launch %d, %-8s: %7.0f us for %7.0f: %+.1f "
        "%%\n",
        i, study.gpu.c_str(), static_cast<int>(*study.world),
        static_cast<int>(*study.batch_per_rank), study.tables.size(),
        static_cast<int>(*study.launch), study.dense->dtype.c_str(), evaluated, predicted,
        100 * (evaluated / predicted - 1));
  }
  std::ranges::sort(errors);
  std::printf("median %.1f %%, worst %.1f %%\n", 100 * errors[errors.size() / 2],
              100 * errors.back());
  EXPECT_LE(errors[errors.size() / 2], 0.05);
  EXPECT_LE(errors.back(), 0.10);
}

}  // namespace sharding_agreement_test
}  // namespace perfmodel::sharding
