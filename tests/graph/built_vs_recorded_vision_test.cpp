// Built MLPs and convolutional networks against recordings of the same models, op by op.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "builders/emit/activation.hpp"
#include "builders/emit/loss.hpp"
#include "builders/emit/pointwise.hpp"
#include "builders/emit/reduction.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace built_vs_recorded_vision_test {

class VisionVsRecorded : public testing::Test {
 protected:
  void SetUp() override {
    const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
    if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    root_ = root;
  }

  ExecutionGraph recorded(const std::string& name) const {
    auto graph = read_execution_graph(root_ / name);
    if (!graph) {
      ADD_FAILURE() << to_string(graph.error());
      return {};
    }
    return std::move(*graph);
  }

 private:
  std::filesystem::path root_;
};

ExecutionGraph built(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

// The public recordings of single GPUs are of PyTorch 2.0.
TrainingOptions pytorch_2_0() {
  TrainingOptions options;
  options.pytorch.major = 2;
  options.pytorch.minor = 0;
  options.step_label = "";
  return options;
}

TEST_F(VisionVsRecorded, Linear) {
  MlpConfig config = *mlp_preset("linear");
  config.training = pytorch_2_0();
  config.training.zero_grad = TrainingOptions::ZeroGrad::kToZero;
  config.training.zero_grad_place = TrainingOptions::ZeroGradPlace::kBeforeLoss;
  config.training.resident_input = true;
  const auto comparison =
      compare_graphs(recorded("traces/linear_et.json.gz"), built(build_mlp(config)));
  EXPECT_TRUE(comparison.same()) << comparison;
  EXPECT_EQ(comparison.equal, 928u);
}

// Further ops of the recorded training script: a running loss, the next batch.
bool is_script(const ExecutionGraph& graph, const Node& node) {
  if (graph.name(node).starts_with("enumerate(DataLoader)")) return true;
  if (graph.name(node) != "aten::add_" || node.inputs_count == 0) return false;
  const Argument& sum = graph.inputs(node).front();
  return sum.kind == Argument::Kind::kTensor && node.parent >= 0 &&
         graph.nodes[static_cast<std::size_t>(node.parent)].is_structural &&
         graph.tensors[sum.index].dtype == DType::kFloat32 && graph.tensors[sum.index].numel == 1;
}

TEST_F(VisionVsRecorded, Resnet18) {
  ResnetConfig config = *resnet_preset("resnet18");
  config.batch = 128;
  config.training = pytorch_2_0();
  config.training.optimizer = TrainingOptions::Optimizer::kMomentum;
  config.training.learning_rate = 0.1;
  config.training.weight_decay = 1e-4;
  config.training.zero_grad_place = TrainingOptions::ZeroGradPlace::kBeforeForward;
  config.training.pinned_input = false;
  ComparisonOptions options;
  options.leave_out = is_script;
  const ExecutionGraph graph = recorded("traces/resnet18_et.json.gz");
  const ExecutionGraph step = built(build_resnet(config));
  const auto comparison = compare_graphs(graph, step, options);
  EXPECT_TRUE(comparison.same()) << comparison;
  // Nodes of the script: the running loss, and 13 nodes of the loader.
  const auto whole = compare_graphs(graph, step);
  EXPECT_EQ(whole.only_first, 14u);
  EXPECT_EQ(whole.only_second, 0u);
}

// Nodes of DistributedDataParallel: broadcasts of the statistics and their copies, views of the
// buckets, collectives, copies into buckets and back.
bool is_data_parallel(const ExecutionGraph& graph, const Node& node) {
  const auto name = graph.name(node);
  if (node.parent < 0) return false;
  const Node& parent = graph.nodes[static_cast<std::size_t>(node.parent)];
  if (name == "aten::copy_") return graph.name(parent) == "DistributedDataParallel.forward";
  if (name == "aten::as_strided") return parent.is_structural;
  return name.starts_with("c10d::") || name.starts_with("record_param_comms") ||
         name.starts_with("torch::distributed::") || name.starts_with("torch.distributed.") ||
         name == "aten::flatten_dense_tensors" || name == "aten::unflatten_dense_tensors";
}

TEST_F(VisionVsRecorded, Resnet50WithoutDataParallel) {
  ResnetConfig config = *resnet_preset("resnet50");
  config.batch = 32;
  config.soft_targets = true;
  config.training.resident_input = true;
  config.training.optimizer = TrainingOptions::Optimizer::kMomentum;
  config.training.zero_grad_place = TrainingOptions::ZeroGradPlace::kBeforeForward;
  config.training.regions = TrainingOptions::Regions::kLossInBackward;
  config.training.step_label = "ProfilerStep#6";
  const ExecutionGraph graph = recorded("traces/resnet50_ddp_et_1.1.1.json.gz");
  ComparisonOptions options;
  options.range = iterations(graph).front();
  options.leave_out = is_data_parallel;
  options.flatten = [](const ExecutionGraph& from, const Node& node) {
    return from.name(node) == "DistributedDataParallel.forward";
  };
  const auto comparison = compare_graphs(graph, built(build_resnet(config)), options);
  EXPECT_TRUE(comparison.same()) << comparison;
}

// The residual block of traces_cpu/record_et.py, by the pieces that builders are made of.
ExecutionGraph build_residual_block() {
  TrainingOptions options;
  options.pytorch = {.major = 1, .minor = 13, .device = GraphBuilder::cpu(), .mkl = false};
  options.optimizer = TrainingOptions::Optimizer::kMomentum;
  options.learning_rate = 0.1;
  options.regions = TrainingOptions::Regions::kLossInForward;
  options.step_label = "";
  ModuleRun run({}, options);
  TrainingStep& step = run.step();
  AutogradTape& tape = step.tape();
  const Conv2d same = {.padding = {1, 1}};
  const ConvLayer stem = make_conv(step, 3, 16, {3, 3}, same);
  const Item first = make_conv_norm(run, 16, 16);
  const Item second = make_conv_norm(run, 16, 16);
  const LinearLayer head = make_linear_layer(step, 16, 10);
  return step.run([&] {
    const TensorRef image = step.input(DType::kFloat32, {8, 3, 32, 32});
    const TensorRef x = apply(step, stem, image);
    TensorRef y = relu(tape, apply(run, first, x));
    y = relu(tape, add(tape, apply(run, second, y), x));
    const TensorRef scores = apply(step, head, mean(tape, y, {2, 3}, false));
    return cross_entropy(run, scores, step.input(DType::kInt64, {8}));
  });
}

TEST_F(VisionVsRecorded, ResidualBlockOnCpu) {
  const auto comparison =
      compare_graphs(recorded("traces_cpu/resblock_sgdm.et.json.gz"), build_residual_block());
  EXPECT_TRUE(comparison.same()) << comparison;
}

}  // namespace built_vs_recorded_vision_test
}  // namespace perfmodel
