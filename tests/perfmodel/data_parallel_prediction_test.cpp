// Data-parallel steps: who waits for the all-reduces, and that a strategy and a rewrite are one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/predictors/topology.hpp"

namespace perfmodel {
namespace data_parallel_prediction_test {

using ::testing::HasSubstr;

const std::filesystem::path& data() {
  static const std::filesystem::path folder = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
  return folder;
}

ExecutionGraph resnet18(std::int64_t batch) {
  ResnetConfig config = resnet_preset("resnet18").value();
  config.batch = batch;
  return build_resnet(config).value();
}

ExecutionGraph gpt(std::int64_t layers, std::int64_t batch) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = layers;
  config.batch = batch;
  return build_gpt(config).value();
}

ExecutionGraph dlrm() { return build_dlrm(dlrm_preset("default").value()).value(); }

class DataParallelPrediction : public ::testing::Test {
 protected:
  const Gpu gpu_ = find_gpu("a100-sxm-80gb", data() / "gpus").value();
  const OverheadTable table_ = read_overheads(data() / "overheads" / "reference.json").value();

  Prediction predicted(const ExecutionGraph& graph, const PredictOptions& options) const {
    auto made = predict(graph, gpu_, table_, options);
    if (made) return std::move(*made);
    ADD_FAILURE() << to_string(made.error());
    return {};
  }

  static PredictOptions ranks(std::int64_t world, const Topology& topology) {
    PredictOptions options;
    options.scale_out = ScaleOut{.world = world, .topology = &topology};
    return options;
  }
  static Topology topology(std::string_view name) {
    return TopologyCatalog::builtin().find(name).value();
  }
};

// When the kernels of a step run, by the node of their op; of one iteration.
struct Times {
  double first = 0, last_end = 0;
};
std::map<std::int64_t, Times> kernel_times_by_op(const Prediction& prediction) {
  std::map<std::int64_t, Times> times;
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      const double end = kernel.start_us + kernel.price.time.count();
      const auto [at, added] = times.try_emplace(op.id, Times{kernel.start_us, end});
      at->second.last_end = std::max(at->second.last_end, end);
    }
  }
  return times;
}

// Readers of an all-reduce's memory in the following steps start after the all-reduce. Counts the
// readers.
std::size_t expect_readers_wait(const ExecutionGraph& graph, const Prediction& prediction) {
  std::map<std::int64_t, double> ends;  // ends of all-reduces, by the storage that they reduce
  for (const PredictedOp& op : prediction.ops) {
    const auto reduced =
        std::ranges::find(op.kernels, KernelFamily::kCollective, &PredictedKernel::family);
    if (reduced == op.kernels.end()) continue;
    const auto top =
        std::ranges::lower_bound(graph.nodes, op.id, {}, &Node::id) - graph.nodes.begin();
    for (auto i = static_cast<std::size_t>(top); i < graph.nodes.size(); ++i) {
      if (graph.name(graph.nodes[i]) != "nccl:all_reduce") continue;
      for_each_tensor(graph, graph.inputs(graph.nodes[i]), [&](const Tensor& tensor) {
        ends[tensor.storage_id] = reduced->start_us + reduced->price.time.count();
      });
      break;
    }
  }
  const auto times = kernel_times_by_op(prediction);
  std::size_t readers = 0;
  double all_reduced = 0;
  for (const auto& [storage, end] : ends) all_reduced = std::max(all_reduced, end);
  for (const PredictedOp& op : prediction.ops) {
    const auto at = times.find(op.id);
    if (at == times.end()) continue;
    const auto node = std::ranges::lower_bound(graph.nodes, op.id, {}, &Node::id);
    if (op.name == "torch.distributed.ddp.reducer::copy_bucket_to_grad") {
      for (std::int32_t child : graph.children(*node)) {
        const auto inputs = graph.inputs(graph.nodes[static_cast<std::size_t>(child)]);
        const auto bucket = ends.find(graph.tensors[inputs[1].index].storage_id);
        EXPECT_NE(bucket, ends.end());
        if (bucket == ends.end()) continue;
        EXPECT_GE(at->second.first, bucket->second) << op.id;
        ++readers;
      }
    }
    bool optimizer = false;
    for (std::int32_t i = node->parent; i >= 0;) {
      const Node& parent = graph.nodes[static_cast<std::size_t>(i)];
      optimizer |= graph.name(parent).starts_with("Optimizer.step");
      i = parent.parent;
    }
    if (!optimizer) continue;
    EXPECT_GE(at->second.first, all_reduced) << op.name;
    ++readers;
  }
  return readers;
}

TEST_F(DataParallelPrediction, CopiesAndOptimizersWaitInRecordedSteps) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  // Slow links: the all-reduces outlast the backward pass.
  const Topology links = topology("pcie");
  for (const char* file : {"resnet50_ddp_et_1.0.3", "resnet50_ddp_et_1.1.0_kernelbackend",
                           "resnet50_ddp_et_1.1.1", "resnet50_ddp_rank1of2_et_1.1.0"}) {
    SCOPED_TRACE(file);
    const ExecutionGraph graph = read_execution_graph(std::filesystem::path(folder) / "traces" /
                                                      (std::string(file) + ".json.gz"))
                                     .value();
    PredictOptions options = ranks(64, links);
    options.iterations = {1, 2};
    const Prediction prediction = predicted(graph, options);
    EXPECT_TRUE(prediction.scaled_out->own_collectives);
    EXPECT_EQ(prediction.communication.collectives, 7u);
    EXPECT_GE(expect_readers_wait(graph, prediction), 161u);
    EXPECT_LE(prediction.gpu_active_us, prediction.e2e_us);
  }
}

TEST_F(DataParallelPrediction, CopiesAndOptimizersWaitInRewrittenSteps) {
  const ExecutionGraph graph = resnet18(64);
  const Topology links = topology("pcie");
  for (const bool views : {false, true}) {
    const ExecutionGraph ddp =
        rewrite_data_parallel(graph, {.world_size = 64, .gradient_as_bucket_view = views}).value();
    const Prediction prediction = predicted(ddp, ranks(64, links));
    EXPECT_GE(expect_readers_wait(ddp, prediction), views ? 1u : 62u);
    EXPECT_GT(prediction.communication.exposed_us, 0);
  }
}

// Once their links bound the step, more ranks take longer; and no stream runs away from the host.
TEST_F(DataParallelPrediction, MoreRanksAndSlowerLinksTakeLonger) {
  for (const ExecutionGraph& graph : {gpt(2, 8), resnet18(64)}) {
    const Prediction alone = predicted(graph, {});
    double before = 0;
    for (const std::int64_t world : {2, 8, 64}) {
      const Topology slow = topology("pcie"), fast = topology("dgx-a100");
      const Prediction on_slow = predicted(graph, ranks(world, slow));
      const Prediction on_fast = predicted(graph, ranks(world, fast));
      EXPECT_GT(on_slow.e2e_us, before);
      EXPECT_LE(on_fast.e2e_us, on_slow.e2e_us);
      EXPECT_GT(on_fast.e2e_us, alone.e2e_us);
      EXPECT_LE(on_slow.gpu_active_us, on_slow.e2e_us);
      EXPECT_LE(on_fast.gpu_active_us, on_fast.e2e_us);
      before = on_slow.e2e_us;
    }
  }
}

TEST_F(DataParallelPrediction, TheStrategyIsTheRewrite) {
  std::vector<ExecutionGraph> graphs;
  graphs.push_back(build_mlp(mlp_preset("linear").value()).value());
  graphs.push_back(resnet18(16));
  graphs.push_back(gpt(2, 2));
  graphs.push_back(dlrm());
  const auto predictor =
      Predictor::load({.data = data(), .gpus = {"a100-sxm-80gb"}, .models = "heuristic"}).value();
  for (const ExecutionGraph& graph : graphs) {
    const PreparedGraph prepared = predictor.prepare(graph).value();
    for (const std::int64_t world : {2, 16, 4}) {
      const ExecutionGraph written = rewrite_data_parallel(graph, {.world_size = world}).value();
      const Prediction expected = predicted(written, {});
      const auto same = [&](const Prediction& prediction) {
        EXPECT_EQ(prediction.e2e_us, expected.e2e_us);
        EXPECT_EQ(prediction.gpu_active_us, expected.gpu_active_us);
        EXPECT_EQ(prediction.comm_kernel_us, expected.comm_kernel_us);
        ASSERT_EQ(prediction.ops.size(), expected.ops.size());
        for (std::size_t i = 0; i < expected.ops.size(); ++i) {
          EXPECT_EQ(prediction.ops[i].name, expected.ops[i].name);
          EXPECT_EQ(prediction.ops[i].start_us, expected.ops[i].start_us);
        }
        EXPECT_EQ(prediction.graph->nodes.size(), written.nodes.size());
        EXPECT_FALSE(prediction.scaled_out->own_collectives);
      };
      PredictOptions options;
      options.scale_out = ScaleOut{.world = world};
      same(predicted(graph, options));
      const AskOptions asked{.world = world, .strategy = ParallelStrategy::kDdp, .keep_ops = true};
      same(predictor.predict(graph, "a100-sxm-80gb", asked).value());
      same(predictor.predict(prepared, "a100-sxm-80gb", asked).value());
    }
  }
}

TEST_F(DataParallelPrediction, TracedTimesGoWithTheirKernels) {
  const ExecutionGraph graph = resnet18(16);
  KernelTimes times;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    times.add(static_cast<std::int32_t>(i), 0, 3, false);
  }
  PredictOptions options;
  options.kernel_times = &times;
  const auto measured = [](const Prediction& prediction) {
    std::size_t count = 0;
    for (const PredictedOp& op : prediction.ops) {
      for (const PredictedKernel& kernel : op.kernels) {
        count += kernel.price.bound == Bound::kMeasured;
      }
    }
    return count;
  };
  const std::size_t alone = measured(predicted(graph, options));
  options.scale_out = ScaleOut{.world = 8};
  const Prediction ddp = predicted(graph, options);
  EXPECT_GT(alone, 100u);
  EXPECT_EQ(measured(ddp), alone);
}

TEST_F(DataParallelPrediction, TablesWithoutGradientsAreTold) {
  const ExecutionGraph graph = dlrm();
  PredictOptions options;
  for (const ParallelStrategy strategy : {ParallelStrategy::kDdp, ParallelStrategy::kFsdp}) {
    options.scale_out = ScaleOut{.world = 8, .strategy = strategy};
    EXPECT_THAT(predicted(graph, options).warnings,
                ::testing::Contains(HasSubstr("of embedding tables in the backward pass itself")));
  }
  options.scale_out->world = 1;
  EXPECT_THAT(predicted(graph, options).warnings,
              ::testing::Not(::testing::Contains(HasSubstr("of embedding tables"))));
  options.scale_out->world = 8;
  EXPECT_THAT(predicted(resnet18(16), options).warnings,
              ::testing::Not(::testing::Contains(HasSubstr("of embedding tables"))));
}

TEST_F(DataParallelPrediction, RanksThatExchangeNothingAreAnError) {
  const ExecutionGraph graph = resnet18(16);
  PredictOptions options;
  options.world_size = 8;
  const auto made = predict(graph, gpu_, table_, options);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("expected collectives for 8 ranks, found none"));
  EXPECT_THAT(made.error().message, HasSubstr("--strategy ddp or fsdp"));
  options.world_size = 1;
  EXPECT_TRUE(predict(graph, gpu_, table_, options));
  options.world_size = 8;
  EXPECT_TRUE(
      predict(rewrite_data_parallel(graph, {.world_size = 8}).value(), gpu_, table_, options));
}

// Sparse gradients: NCCL does not reduce them, nor does the strategy.
TEST_F(DataParallelPrediction, WhatTheRewriteRefusesIsRefused) {
  DlrmConfig config = dlrm_preset("default").value();
  config.table_batched = false;
  const ExecutionGraph graph = build_dlrm(config).value();
  PredictOptions options;
  options.scale_out = ScaleOut{.world = 8};
  const auto made = predict(graph, gpu_, table_, options);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("expected dense gradients, found a sparse one"));
}

// Tables learned from traces without graphs know records and labels by their names alone.
TEST_F(DataParallelPrediction, CollectivesOfTablesFromTracesAloneCountOnce) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto traces = std::filesystem::path(folder) / "traces";
  struct Case {
    std::string trace, graph;
    std::size_t collectives;
  };
  std::vector<Case> cases = {
      {"resnet50_ddp_2gpu_a100_kineto.json.gz", "resnet50_ddp_rank1of2_et_1.1.0.json.gz", 21}};
  for (const char* rank : {"0", "1", "2", "3"}) {
    const std::string name = std::string("dlrm_v100_rank") + rank + "of8_";
    cases.push_back({name + "kineto.json.gz", name + "et.json.gz", 8});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(c.graph);
    const Trace trace = read_trace(traces / c.trace).value();
    const ExecutionGraph graph = read_execution_graph(traces / c.graph).value();
    const OverheadSource alone{.trace = &trace};
    const OverheadTable table = extract_overheads({&alone, 1}, {}).value();
    const auto made = predict(graph, gpu_, table);
    ASSERT_TRUE(made) << to_string(made.error());
    EXPECT_EQ(made->communication.collectives, c.collectives);
    // The rule of the record says what each moves.
    const auto by_rule = predict(graph, gpu_, OverheadTable{});
    ASSERT_TRUE(by_rule) << to_string(by_rule.error());
    EXPECT_NEAR(made->comm_kernel_us, by_rule->comm_kernel_us, 1e-6);
  }
}

}  // namespace data_parallel_prediction_test
}  // namespace perfmodel
