// Nodes that DistributedDataParallel adds to a graph, compared with a recording op by op.
#include "perfmodel/graph/rewrites/training.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/gradient_buckets.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"

namespace perfmodel {
namespace rewrite_data_parallel_test {

ResnetConfig recorded_resnet50() {
  ResnetConfig config = *resnet_preset("resnet50");
  config.batch = 32;
  config.soft_targets = true;
  config.training.resident_input = true;
  config.training.optimizer = TrainingOptions::Optimizer::kMomentum;
  config.training.zero_grad_place = TrainingOptions::ZeroGradPlace::kBeforeForward;
  config.training.regions = TrainingOptions::Regions::kLossInBackward;
  config.training.step_label = "ProfilerStep#6";
  return config;
}

ExecutionGraph value(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

TEST(DataParallel, Resnet50IsTheRecordedOne) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const ExecutionGraph recorded = value(
      read_execution_graph(std::filesystem::path(folder) / "traces/resnet50_ddp_et_1.1.1.json.gz"));
  const ExecutionGraph made = value(rewrite_data_parallel(
      value(build_resnet(recorded_resnet50())), {.world_size = 1, .first_collective = 47}));
  ComparisonOptions options;
  options.leave_out = [](const ExecutionGraph& from, const Node& node) {
    return from.name(node) == "## process_group:init ##";  // in front of the recorded steps
  };
  options.range = iterations(recorded).front();
  const auto comparison = compare_graphs(recorded, made, options);
  EXPECT_TRUE(comparison.same()) << comparison;
}

// Twelve layers of 512 x 512 with biases: 1 MiB + 2 KiB each.
ExecutionGraph mlp(const std::function<void(MlpConfig&)>& change = {}) {
  MlpConfig config;
  config.widths.assign(13, 512);
  config.batch = 64;
  if (change) change(config);
  return value(build_mlp(config));
}

std::vector<std::int64_t> reduced_elements(const ExecutionGraph& graph) {
  std::vector<std::int64_t> elements;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "nccl:all_reduce") continue;
    elements.push_back(graph.tensors[graph.inputs(node)[0].index].numel);
  }
  return elements;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  return static_cast<std::size_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(),
                    [&](const Node& node) { return graph.name(node) == name; }));
}

TEST(DataParallel, BucketsCloseWhenTheyReachTheirLimit) {
  constexpr std::int64_t kLayer = 512 * 512 + 512;
  EXPECT_EQ(reduced_elements(value(rewrite_data_parallel(mlp(), {.world_size = 8}))),
            (std::vector<std::int64_t>{kLayer, 11 * kLayer}));
  EXPECT_EQ(reduced_elements(value(rewrite_data_parallel(
                mlp(), {.world_size = 8, .bucket_cap_bytes = 4 * kLayer * 4}))),
            (std::vector<std::int64_t>{kLayer, 4 * kLayer, 4 * kLayer, 3 * kLayer}));
}

TEST(DataParallel, GroupAndRecordsKnowTheWorld) {
  const ExecutionGraph graph = value(rewrite_data_parallel(mlp(), {.world_size = 8}));
  ASSERT_EQ(graph.process_groups.size(), 1u);
  EXPECT_EQ(graph.process_groups[0].size, 8);
  ASSERT_EQ(graph.comm_records.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(graph.comm_records[i].collective, "allreduce");
    EXPECT_EQ(graph.comm_records[i].group_size, 8);
    EXPECT_EQ(graph.comm_records[i].sequence, static_cast<std::int64_t>(i) + 1);
  }
}

TEST(DataParallel, CopiesGradientsInAndOut) {
  const ExecutionGraph graph = value(rewrite_data_parallel(mlp(), {.world_size = 8}));
  EXPECT_EQ(count(graph, "torch::distributed::reducer::mul_out"), 24u);
  EXPECT_EQ(count(graph, "torch.distributed.ddp.reducer::copy_bucket_to_grad"), 24u);
  EXPECT_EQ(count(graph, "DistributedDataParallel.forward"), 1u);
  EXPECT_EQ(count(graph, "nccl:broadcast"), 0u);  // no batch norms, no buffers
}

std::int32_t last_of(const ExecutionGraph& graph, std::string_view name) {
  auto at = static_cast<std::int32_t>(graph.nodes.size()) - 1;
  while (at >= 0 && graph.name(at) != name) --at;
  return at;
}
std::int32_t first_of(const ExecutionGraph& graph, std::string_view name) {
  std::int32_t at = 0;
  while (at < std::ssize(graph.nodes) && graph.name(at) != name) ++at;
  return at;
}

// The first gradient is ready inside the function of a checkpoint, where the engine runs again.
TEST(DataParallel, CopiesGradientsOutAfterTheLastCheckpoint) {
  const ExecutionGraph graph = value(
      rewrite_data_parallel(value(rewrite_checkpointing(mlp(), {.every = 3})), {.world_size = 8}));
  EXPECT_EQ(count(graph, "torch.distributed.ddp.reducer::copy_bucket_to_grad"), 24u);
  EXPECT_LT(last_of(graph, "torch::distributed::reducer::mul_out"),
            first_of(graph, "torch.distributed.ddp.reducer::copy_bucket_to_grad"));
}

// The optimizer reads the pieces of the buckets, and nothing is copied back.
TEST(DataParallel, GradientsMayLieInTheBuckets) {
  for (const auto zero_grad :
       {TrainingOptions::ZeroGrad::kToNone, TrainingOptions::ZeroGrad::kToZero}) {
    const ExecutionGraph graph = value(rewrite_data_parallel(
        mlp([&](MlpConfig& config) { config.training.zero_grad = zero_grad; }),
        {.world_size = 8, .gradient_as_bucket_view = true}));
    EXPECT_EQ(count(graph, "torch.distributed.ddp.reducer::copy_bucket_to_grad"), 0u);
    EXPECT_EQ(count(graph, "torch::distributed::reducer::mul_out"),
              zero_grad == TrainingOptions::ZeroGrad::kToNone ? 24u : 0u);
    std::set<std::int64_t> buckets, gradients;
    for (const Node& node : graph.nodes) {
      if (graph.name(node) == "nccl:all_reduce") {
        buckets.insert(graph.tensors[graph.inputs(node)[0].index].storage_id);
      }
      if (graph.name(node) != "aten::_foreach_add_") continue;
      for (const Argument& gradient : graph.elements(graph.inputs(node)[1])) {
        gradients.insert(graph.tensors[gradient.index].storage_id);
      }
    }
    EXPECT_EQ(gradients, buckets);
  }
}

TEST(DataParallel, LabelsOnlyTheModel) {
  const ExecutionGraph graph = value(rewrite_data_parallel(mlp(), {.world_size = 2}));
  std::vector<std::string> children;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "DistributedDataParallel.forward") continue;
    for (std::int32_t child : graph.children(node)) {
      children.emplace_back(graph.name(graph.nodes[static_cast<std::size_t>(child)]));
    }
  }
  EXPECT_EQ(std::count(children.begin(), children.end(), "aten::linear"), 12);
  EXPECT_EQ(std::count(children.begin(), children.end(), "aten::to"), 0);
  EXPECT_EQ(std::count(children.begin(), children.end(), "aten::cross_entropy_loss"), 0);
}

TEST(DataParallel, BucketsAreCutInTheOrderOfReadiness) {
  const ExecutionGraph graph =
      value(rewrite_data_parallel(value(build_resnet(recorded_resnet50())), {}));
  std::vector<BucketedGradient> ready;
  std::vector<double> reduced;
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (name != "torch::distributed::reducer::mul_out" && name != "nccl:all_reduce") continue;
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      const auto bytes = static_cast<double>(tensor.bytes());
      if (name == "nccl:all_reduce") reduced.push_back(bytes);
      if (name != "nccl:all_reduce") ready.push_back({.bytes = bytes});
    });
  }
  std::vector<double> expected;
  for (const auto& bucket : gradient_buckets(ready, 1 << 20, 25 << 20)) {
    expected.push_back(0);
    for (std::size_t i : bucket) expected.back() += ready[i].bytes;
  }
  EXPECT_EQ(reduced, expected);
  EXPECT_EQ(reduced.size(), 5u);
}

// Apex's delay_allreduce: 12 x (1 MiB + 2 KiB) in one buffer, once the backward pass is done.
TEST(DataParallel, DelayedReducesAllGradientsTogether) {
  const ExecutionGraph made =
      value(rewrite_data_parallel(mlp(), {.world_size = 8, .delayed = true}));
  std::vector<double> reduced;
  std::size_t last_function = 0, reduction = 0, copies = 0;
  for (std::size_t i = 0; i < made.nodes.size(); ++i) {
    const std::string_view name = made.name(made.nodes[i]);
    if (name.starts_with("autograd::engine")) last_function = i;
    if (reduction > 0 && name == "aten::copy_") ++copies;
    if (name != "nccl:all_reduce") continue;
    reduction = i;
    for_each_tensor(made, made.inputs(made.nodes[i]), [&](const Tensor& tensor) {
      reduced.push_back(static_cast<double>(tensor.bytes()));
    });
  }
  EXPECT_EQ(reduced, std::vector<double>{12.0 * ((1 << 20) + (2 << 10))});
  EXPECT_GT(reduction, last_function);
  EXPECT_EQ(copies, 24U);
}

std::string refusal(const ExecutionGraph& graph, const DataParallelRewrite& rewrite = {}) {
  const auto made = rewrite_data_parallel(graph, rewrite);
  return made ? "" : made.error().message;
}

TEST(DataParallel, SaysWhyNot) {
  EXPECT_EQ(refusal(mlp(), {.world_size = 0}), "data-parallel: expected at least 1 GPU, found 0");
  EXPECT_EQ(refusal(mlp(), {.bucket_cap_bytes = 0}),
            "data-parallel: expected buckets of at least 1 B, found 1048576 and 0");
  EXPECT_EQ(refusal(mlp(), {.gradient_as_bucket_view = true, .delayed = true}),
            "data-parallel: expected one buffer after the backward pass, or views or pieces in "
            "buckets, found both");
  EXPECT_EQ(refusal(mlp([](MlpConfig& config) {
              config.training.phase = TrainingOptions::Phase::kForward;
            })),
            "data-parallel: expected a backward pass with AccumulateGrad, found none");
  EXPECT_EQ(refusal(mlp([](MlpConfig& config) {
              config.training.pytorch.device = {.kind = Device::Kind::kCpu, .index = -1};
            })),
            "data-parallel: expected gradients on a GPU, found one on a CPU");
  const ExecutionGraph twice = value(rewrite_data_parallel(mlp(), {}));
  EXPECT_TRUE(refusal(twice).starts_with(
      "data-parallel: expected a graph without collectives, found allreduce (node "))
      << refusal(twice);
  DlrmConfig dlrm = *dlrm_preset("ddp");
  dlrm.table_batched = false;
  EXPECT_EQ(refusal(value(build_dlrm(dlrm))),
            "data-parallel: expected dense gradients, found a sparse one of [80000, 128], which "
            "NCCL does not reduce");
}

}  // namespace rewrite_data_parallel_test
}  // namespace perfmodel
