#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/memory.hpp"
#include "step/step_view.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace rewrite_fused_loss_test {

using Precision = PrecisionOptions::Precision;

// 1,024 rows of 1,000 classes from 64 numbers.
ExecutionGraph small_gpt() {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 1;
  config.hidden = 64;
  config.heads = 4;
  config.vocabulary = 1000;
  config.batch = 8;
  config.sequence = 129;
  config.dropout = 0;
  return build_gpt(config).value();
}

std::int64_t count(const ExecutionGraph& graph, std::string_view name) {
  return std::ranges::count_if(graph.nodes,
                               [&](const Node& node) { return graph.name(node) == name; });
}

std::int32_t find(const ExecutionGraph& graph, std::string_view name) {
  const auto at =
      std::ranges::find_if(graph.nodes, [&](const Node& node) { return graph.name(node) == name; });
  return static_cast<std::int32_t>(at - graph.nodes.begin());
}

TEST(FusedLoss, GradientTakesThePlaceOfTheLogits) {
  const ExecutionGraph made = rewrite_fused_loss(small_gpt(), LossFusion::kCrossEntropy).value();
  EXPECT_EQ(count(made, "aten::_log_softmax"), 0);
  EXPECT_EQ(count(made, "aten::nll_loss_backward"), 0);
  EXPECT_EQ(count(made, "liger::cross_entropy"), 1);
  EXPECT_EQ(count(made, "liger::scale_gradient_"), 0);  // the loss is the root
  const Tensor& logits = *input_at(made, find(made, "liger::cross_entropy"), 0);
  EXPECT_EQ(logits.numel, 1024 * 1000);
  // The backward pass goes on from there.
  const StepView step(made);
  for (const BackwardFunction& function : step.backward().functions) {
    if (made.name(function.function) != "LigerCrossEntropyFunctionBackward") continue;
    EXPECT_EQ(made.name(function.forward), "LigerCrossEntropyFunction");
    const std::int32_t view = made.children(function.function).back();
    EXPECT_EQ(output_at(made, view)->storage_id, logits.storage_id);
    EXPECT_FALSE(edges_to(step.backward(), 1).empty());
  }
}

TEST(FusedLoss, ScaledLossesScaleTheGradient) {
  const ExecutionGraph scaled =
      rewrite_precision(small_gpt(), {.precision = Precision::kFp16, .grad_scaler = true}).value();
  const ExecutionGraph made = rewrite_fused_loss(scaled, LossFusion::kCrossEntropy).value();
  EXPECT_EQ(count(made, "liger::scale_gradient_"), 1);
  const ExecutionGraph linear = rewrite_fused_loss(scaled, LossFusion::kLinear).value();
  EXPECT_EQ(count(linear, "liger::scale_gradient_"), 2);  // input and weight
}

TEST(FusedLoss, LinearLossGoesThroughChunks) {
  const ExecutionGraph made = rewrite_fused_loss(small_gpt(), LossFusion::kLinear).value();
  // ceil(1000 / 64) = 16 parts of 1,024 rows: 64 rows each.
  EXPECT_EQ(count(made, "liger::cross_entropy"), 16);
  const Tensor& logits = *input_at(made, find(made, "liger::cross_entropy"), 0);
  EXPECT_EQ(made.shape(logits)[0], 64);
  for (const Node& node : made.nodes) {
    for_each_tensor(made, made.outputs(node), [&](const Tensor& given) {
      const bool has_classes = given.rank > 1 && made.shape(given).back() == 1000;
      EXPECT_TRUE(!has_classes || given.numel <= 64 * 1000) << made.name(node);
    });
  }
  // One addmm per chunk adds to the gradient of the weight; no other function computes it.
  const ExecutionGraph source = small_gpt();
  EXPECT_EQ(count(made, "MmBackward0"), count(source, "MmBackward0") - 1);
  EXPECT_EQ(count(made, "torch::autograd::AccumulateGrad"),
            count(source, "torch::autograd::AccumulateGrad"));
}

TEST(FusedLoss, MemoryOfLogitsGoes) {
  const auto peak = [](const ExecutionGraph& graph) {
    return memory_report(graph, nullptr).memory.peak_allocated_bytes;
  };
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 1;
  config.batch = 8;
  config.dropout = 0;
  const ExecutionGraph graph = build_gpt(config).value();
  const double logits = 8.0 * 1023 * 50257 * 4;
  const double before = peak(graph);
  const double fused = peak(rewrite_fused_loss(graph, LossFusion::kCrossEntropy).value());
  const double linear = peak(rewrite_fused_loss(graph, LossFusion::kLinear).value());
  EXPECT_GT(before - fused, 0.85 * logits);
  EXPECT_GT(fused - linear, logits);
}

TEST(FusedLoss, RefusesWhatIsNoLossOverClasses) {
  const ExecutionGraph once = rewrite_fused_loss(small_gpt(), LossFusion::kLinear).value();
  const auto twice = rewrite_fused_loss(once, LossFusion::kLinear);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message,
            "fuse-loss: expected a cross-entropy over classes of what a linear layer gives, found "
            "none");
}

}  // namespace rewrite_fused_loss_test
}  // namespace perfmodel
