// Effects of rewrites on a prediction.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "../scratch.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/what_if.hpp"

namespace perfmodel {
namespace rewritten_prediction_test {

class RewrittenPrediction : public ::testing::Test {
 protected:
  RewrittenPrediction() {
    const std::filesystem::path data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
    table_ = read_overheads(data / "overheads" / "reference.json").value();
    gpu_ = find_gpu("a100-sxm-80gb", data / "gpus").value();
    ResnetConfig config = resnet_preset("resnet18").value();
    config.batch = 256;  // the device bounds the step
    resnet_ = build_resnet(config).value();
  }

  // Names of ops live as long as the graph: it must not be a temporary.
  Prediction predicted(const ExecutionGraph& graph) const {
    return predict(graph, gpu_, table_).value();
  }
  Prediction predicted(ExecutionGraph&&) const = delete;

  static double kernel_time(const Prediction& prediction, std::string_view op) {
    double sum = 0;
    for (const PredictedOp& at : prediction.ops) {
      if (at.name != op) continue;
      for (const PredictedKernel& kernel : at.kernels) sum += kernel.price.time.count();
    }
    return sum;
  }
  static std::size_t count(const Prediction& prediction, std::string_view op) {
    std::size_t number = 0;
    for (const PredictedOp& at : prediction.ops) number += at.name == op;
    return number;
  }

  OverheadTable table_;
  Gpu gpu_;
  ExecutionGraph resnet_;
};

std::int64_t offloaded_bytes(const ExecutionGraph& graph) {
  std::int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    if (!graph.name(node).starts_with("offload::to_")) continue;
    for_each_tensor(graph, graph.outputs(node),
                    [&](const Tensor& tensor) { bytes += tensor.bytes(); });
  }
  return bytes;
}

// Both ways share one stream of their own: a slow one takes the whole step; a fast one is never
// waited for.
TEST_F(RewrittenPrediction, OffloadedActivationsCostWhatPcieCannotHide) {
  const ExecutionGraph made = rewrite_offload(resnet_, {}).value();
  gpu_.pcie_bandwidth = BytesPerSecond{1e15};
  const Prediction plain = predicted(resnet_), fast = predicted(made);
  EXPECT_GE(fast.e2e_us, plain.e2e_us);
  EXPECT_NEAR(fast.e2e_us, plain.e2e_us, 0.03 * plain.e2e_us);
  constexpr double kSlow = 2e9;
  gpu_.pcie_bandwidth = BytesPerSecond{kSlow};
  const Prediction slow = predicted(made);
  const double copies_us = static_cast<double>(offloaded_bytes(made)) / kSlow * 1e6;
  ASSERT_GT(copies_us, 2 * plain.e2e_us);
  EXPECT_GT(slow.e2e_us, copies_us);
  EXPECT_LT(slow.e2e_us, 1.5 * copies_us + plain.e2e_us);
  EXPECT_LT(slow.memory.needed_bytes(), plain.memory.needed_bytes());
}

TEST_F(RewrittenPrediction, ScaledKernelsTakeThatMuchLess) {
  const Prediction before = predicted(resnet_);
  const ExecutionGraph half =
      scale_kernel_time(resnet_, {.pattern = "aten::conv2d", .value = 0.5}).value();
  const Prediction after = predicted(half);
  const double time = kernel_time(before, "aten::conv2d");
  ASSERT_GT(time, 0);
  EXPECT_NEAR(kernel_time(after, "aten::conv2d"), time / 2, 1e-9 * time);
  EXPECT_NEAR(after.kernel_sum_us, before.kernel_sum_us - time / 2, 1e-9 * time);
  EXPECT_LT(after.e2e_us, before.e2e_us);
  EXPECT_NEAR(after.cpu_us, before.cpu_us, 1e-6);
}

TEST_F(RewrittenPrediction, GivenTimesAreSharedOutAsPredicted) {
  const Prediction before = predicted(resnet_);
  const ExecutionGraph given =
      set_kernel_time(resnet_, {.pattern = "aten::batch_norm", .value = 7}).value();
  const Prediction after = predicted(given);
  EXPECT_NEAR(kernel_time(after, "aten::batch_norm"),
              7.0 * static_cast<double>(count(before, "aten::batch_norm")), 1e-6);
  for (std::size_t i = 0; i < after.ops.size(); ++i) {
    const auto &was = before.ops[i].kernels, &now = after.ops[i].kernels;
    ASSERT_EQ(was.size(), now.size());
    if (after.ops[i].name != "aten::batch_norm") continue;
    double sum = 0;
    for (const PredictedKernel& kernel : was) sum += kernel.price.time.count();
    for (std::size_t k = 0; k < now.size(); ++k) {
      EXPECT_NEAR(now[k].price.time.count(), 7 * was[k].price.time.count() / sum, 1e-9);
      EXPECT_EQ(now[k].price.low, now[k].price.high);
      EXPECT_EQ(now[k].price.bound, Bound::kMeasured);
    }
  }
}

TEST_F(RewrittenPrediction, WithoutTheOptimizerTheRestTakesItsTime) {
  const Prediction whole = predicted(resnet_);
  const ExecutionGraph without = remove_ops(resnet_, "Optimizer.step#*").value();
  const ExecutionGraph alone = keep_subgraph(resnet_, "Optimizer.step#*").value();
  const Prediction rest = predicted(without), step = predicted(alone);
  EXPECT_NEAR(rest.kernel_sum_us + step.kernel_sum_us, whole.kernel_sum_us,
              1e-6 * whole.kernel_sum_us);
  EXPECT_EQ(rest.ops.size() + step.ops.size(), whole.ops.size());
}

// Rows that are read often stay in caches.
TEST_F(RewrittenPrediction, SkewedLookupsAreFasterAndNothingElseChanges) {
  DlrmConfig config = dlrm_preset("mlperf").value();
  config.batch = 8192;
  const ExecutionGraph uniform = build_dlrm(config).value();
  const ExecutionGraph same = set_index_skew(uniform, 0).value();
  const ExecutionGraph skewed = set_index_skew(uniform, 1.2).value();
  const Prediction before = predicted(uniform), after = predicted(skewed);
  EXPECT_EQ(predicted(same).e2e_us, before.e2e_us);
  std::size_t lookups = 0;
  ASSERT_EQ(after.ops.size(), before.ops.size());
  for (std::size_t i = 0; i < after.ops.size(); ++i) {
    for (std::size_t k = 0; k < after.ops[i].kernels.size(); ++k) {
      const PredictedKernel &was = before.ops[i].kernels[k], &now = after.ops[i].kernels[k];
      const bool looks_up = was.family == KernelFamily::kEmbeddingForward ||
                            was.family == KernelFamily::kEmbeddingBackward;
      lookups += looks_up;
      if (looks_up) {
        EXPECT_LT(now.price.time, was.price.time) << after.ops[i].name;
      } else {
        EXPECT_EQ(now.price.time, was.price.time) << after.ops[i].name;
      }
    }
  }
  EXPECT_GE(lookups, 2U);
}

// Given times stay what they are when a job is scaled out, factors apply to the new price.
TEST_F(RewrittenPrediction, CollectivesKeepTheirFactorInAnotherWorld) {
  const ExecutionGraph ddp = rewrite_data_parallel(resnet_, {.world_size = 2}).value();
  const ExecutionGraph half = scale_kernel_time(ddp, {.pattern = "nccl:*", .value = 0.5}).value();
  PredictOptions options;
  options.scale_out = ScaleOut{.world = 8};
  const auto time = [&](const ExecutionGraph& graph) {
    double sum = 0;
    const auto made = predict(graph, gpu_, table_, options);
    EXPECT_TRUE(made) << to_string(made.error());
    if (!made) return sum;
    for (const PredictedOp& op : made->ops) {
      for (const PredictedKernel& kernel : op.kernels) {
        if (kernel.family == KernelFamily::kCollective) sum += kernel.price.time.count();
      }
    }
    return sum;
  };
  const double whole = time(ddp);
  ASSERT_GT(whole, 0);
  EXPECT_NEAR(time(half), whole / 2, 1e-9 * whole);
}

// Factors of ops inside each other multiply: together they may be more than each alone.
TEST_F(RewrittenPrediction, TimesThatNoSumHoldsAreRefusedWithTheOp) {
  ExecutionGraph endless = resnet_;
  for (Node& node : endless.nodes) {
    if (endless.name(node).starts_with("aten::")) node.kernel_time_scale = 1e300;
  }
  for (const auto method : {OverheadMethod::kContext, OverheadMethod::kLin}) {
    OverheadTable table = table_;
    table.method = method;
    if (method == OverheadMethod::kLin) table.t1.all.mean_us = 1e308;
    const auto made = predict(endless, gpu_, table);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find("expected a time of at most 1e+15 us, found "),
              std::string::npos)
        << made.error().message;
    EXPECT_NE(made.error().message.find(" us in \"aten::"), std::string::npos)
        << made.error().message;
  }
}

TEST_F(RewrittenPrediction, ADayIsStillATime) {
  const ExecutionGraph slow =
      set_kernel_time(resnet_, {.pattern = "aten::addmm", .value = kMostKernelTimeUs}).value();
  EXPECT_GE(predicted(slow).e2e_us, kMostKernelTimeUs);
}

TEST_F(RewrittenPrediction, AGraphOfAMachineWithoutAGpuHasToBeRetargetedFirst) {
  ResnetConfig config = resnet_preset("resnet18").value();
  config.training.pytorch.device = {.kind = Device::Kind::kCpu};
  const ExecutionGraph recorded = build_resnet(config).value();
  const std::string expected = "--retarget nvidia";
  for (const auto method : {OverheadMethod::kContext, OverheadMethod::kLin}) {
    OverheadTable table = table_;
    table.method = method;
    const auto made = predict(recorded, gpu_, table);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find(expected), std::string::npos) << made.error().message;
  }
  const RankInput rank{.graph = &recorded, .table = &table_};
  const auto job = predict_job({&rank, 1}, gpu_);
  ASSERT_FALSE(job);
  EXPECT_NE(job.error().message.find(expected), std::string::npos) << job.error().message;
  const Variant as_it_is{"as it is", {}};
  const WhatIfTarget target{.gpu = gpu_, .overheads = &table_};
  const auto answers = what_if(recorded, {&as_it_is, 1}, {&target, 1});
  ASSERT_TRUE(answers.at(0).error);
  EXPECT_NE(answers[0].error->message.find(expected), std::string::npos);

  const ExecutionGraph on_gpu = retarget(recorded).value();
  EXPECT_GT(predicted(on_gpu).kernel_sum_us, 0);
}

TEST_F(RewrittenPrediction, ElementTypesWithoutAModelAreTheFirstWarning) {
  ExecutionGraph nonsense = resnet_;
  for (Node& node : nonsense.nodes) {
    if (nonsense.name(node) != "aten::addmm") continue;
    for_each_tensor(nonsense, nonsense.inputs(node), [&](const Tensor& tensor) {
      nonsense.tensors[static_cast<std::size_t>(&tensor - nonsense.tensors.data())].dtype =
          DType::kUnknown;
    });
  }
  const Prediction before = predicted(resnet_), after = predicted(nonsense);
  EXPECT_TRUE(before.coverage.unmodelled_ops.empty());
  ASSERT_EQ(after.coverage.unmodelled_ops.size(), 1U);
  EXPECT_EQ(after.coverage.unmodelled_ops[0].op, "aten::addmm");
  EXPECT_LT(after.coverage.modelled_time_fraction, 1);
  ASSERT_FALSE(after.warnings.empty());
  EXPECT_EQ(after.warnings[0],
            "1 op name without a kernel model for their types and shapes, left out of the device's "
            "time: aten::addmm");

  const NameId strange = nonsense.names.intern("own::addmm\n\x1b[2J");
  for (Node& node : nonsense.nodes) {
    if (nonsense.name(node) == "aten::addmm") node.name = strange;
  }
  const Prediction again = predicted(nonsense);
  ASSERT_FALSE(again.warnings.empty());
  EXPECT_TRUE(again.warnings[0].ends_with("time: own::addmm??[2J")) << again.warnings[0];
}

TEST_F(RewrittenPrediction, OfTheFileIsThatOfTheGraph) {
  const auto file = test_support::scratch() / "predicted_again.json.gz";
  const std::vector<NamedRewrite> rewrites = {
      {"--batch", [](const auto& graph) { return set_batch_size(graph, {.batch = 100}); }},
      {"--precision",
       [](const auto& graph) {
         return rewrite_precision(graph, {.precision = PrecisionOptions::Precision::kBf16});
       }},
      {"--optimizer",
       [](const auto& graph) {
         return rewrite_optimizer(graph,
                                  {.optimizer = TrainingOptions::Optimizer::kAdamW,
                                   .implementation = TrainingOptions::Implementation::kFused});
       }},
      {"--data-parallel",
       [](const auto& graph) { return rewrite_data_parallel(graph, {.world_size = 4}); }},
      {"--kernel-time", [](const auto& graph) {
         return set_kernel_time(graph, {.pattern = "aten::max_pool2d", .value = 11});
       }}};
  for (std::size_t n = 0; n <= rewrites.size(); ++n) {
    const ExecutionGraph made = apply_rewrites(resnet_, std::span(rewrites).first(n)).value();
    ASSERT_TRUE(write_execution_graph(made, file));
    const ExecutionGraph read = read_execution_graph(file).value();
    const Prediction of_graph = predicted(made), of_file = predicted(read);
    EXPECT_EQ(of_file.e2e_us, of_graph.e2e_us) << n << " rewrites";
    EXPECT_EQ(of_file.kernel_sum_us, of_graph.kernel_sum_us) << n << " rewrites";
  }
}

// Kernels of one op may be of several families: each has its own share of the path.
TEST_F(RewrittenPrediction, ThePathNamesEachKernelByItsOwnFamily) {
  const Prediction prediction = predicted(resnet_);
  std::map<std::string, double> shares, kernels;  // by family
  for (const auto& share : prediction.critical_path.shares) shares[share.category] += share.us;
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      kernels[std::string(to_string(kernel.family))] += kernel.price.time.count();
    }
  }
  // Each with the gap before it. Some kernels of a step overlap with its host.
  for (const auto& [family, time] : kernels) {
    EXPECT_GE(shares[family], 0.4 * time) << family;  // parts take no time
    EXPECT_LT(shares[family], 1.05 * time + 10) << family;
  }
}

}  // namespace rewritten_prediction_test
}  // namespace perfmodel
