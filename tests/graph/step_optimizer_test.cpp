// Steps of optimizers as a training step has them: whose nodes they are, what they update.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace step_optimizer_test {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

ExecutionGraph mlp(Optimizer optimizer, Implementation implementation = Implementation::kDefault) {
  MlpConfig config = mlp_preset("mnist").value();
  config.widths = {16, 8, 4};
  config.training.optimizer = optimizer;
  config.training.implementation = implementation;
  return build_mlp(config).value();
}

TEST(StepOptimizer, NodesBelowLabelsOfOptimizersAreUnderOne) {
  const ExecutionGraph graph = mlp(Optimizer::kAdam);
  std::size_t zero_grads = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const std::string_view name = graph.name(i);
    zero_grads += is_zero_grad(graph, i);
    EXPECT_EQ(is_zero_grad(graph, i), name == "Optimizer.zero_grad#Adam.zero_grad");
    if (name == "aten::addmm") {
      EXPECT_FALSE(is_under_optimizer(graph, i));
    } else if (name.starts_with("Optimizer.") || name.starts_with("aten::_foreach_")) {
      EXPECT_TRUE(is_under_optimizer(graph, i));
    }
  }
  EXPECT_EQ(zero_grads, 1U);
}

TEST(StepOptimizer, UpdatesOfAllGroupsFollowEachOther) {
  const ExecutionGraph graph = mlp(Optimizer::kMomentum);
  const StepView step(graph);
  const auto& steps = step.optimizers();
  ASSERT_TRUE(steps) << to_string(steps.error());
  ASSERT_EQ(steps->size(), 1U);
  std::size_t parameters = 0;
  for (const ReadUpdate& update : updates_of(*steps)) {
    const Tensor &parameter = graph.tensors[update.parameter],
                 &gradient = graph.tensors[update.gradient];
    EXPECT_EQ(parameter.numel, gradient.numel);
    EXPECT_EQ(graph.tensors[update.first].numel, parameter.numel);
    ++parameters;
  }
  EXPECT_EQ(parameters, 4U);              // weights and biases of two layers
  EXPECT_EQ(&step.optimizers(), &steps);  // read once
}

// A fused step names its state and numbers by their places among the arguments.
TEST(StepOptimizer, FusedStepsAreReadByTheirPlaces) {
  for (const Optimizer optimizer :
       {Optimizer::kSgd, Optimizer::kMomentum, Optimizer::kAdam, Optimizer::kAdamW}) {
    const ExecutionGraph graph = mlp(optimizer, Implementation::kFused);
    const StepView step(graph);
    const auto& steps = step.optimizers();
    ASSERT_TRUE(steps) << to_string(steps.error());
    const ReadGroup& group = steps->begin()->second.groups.front();
    EXPECT_EQ(group.settings, optimizer_settings(optimizer, Implementation::kFused));
    EXPECT_EQ(group.updates.front().first >= 0, optimizer != Optimizer::kSgd);
    const bool is_adam = optimizer == Optimizer::kAdam || optimizer == Optimizer::kAdamW;
    EXPECT_EQ(group.updates.front().second >= 0, is_adam);
    EXPECT_EQ(group.updates.front().step >= 0, is_adam);
  }
}

// Apex keeps batch norms in fp32, so their gradients are not halved on the way to the optimizer.
TEST(StepOptimizer, MasterWeightsUpdateTheTypeOfTheirGradients) {
  ResnetConfig config = resnet_preset("resnet18").value();
  config.batch = 2;
  const auto half =
      rewrite_precision(build_resnet(config).value(),
                        {.precision = PrecisionOptions::Precision::kBf16, .master_weights = true});
  ASSERT_TRUE(half) << to_string(half.error());
  const StepView step(*half);
  std::size_t with_copies = 0;
  for (const ReadUpdate& update : updates_of(*step.optimizers())) {
    const bool has_copy = update.weight >= 0;
    with_copies += has_copy;
    EXPECT_EQ(half->tensors[update.parameter].dtype, DType::kFloat32);
    EXPECT_EQ(half->tensors[update.gradient].dtype, has_copy ? DType::kBFloat16 : DType::kFloat32);
  }
  EXPECT_EQ(with_copies, 22U);  // 20 convolutions, the weight and the bias of the last layer
}

TEST(StepOptimizer, DialectIsThatOfTheSteps) {
  const ExecutionGraph graph = mlp(Optimizer::kAdam);
  EXPECT_FALSE(StepView(graph).dialect().before(2, 0));
}

}  // namespace step_optimizer_test
}  // namespace perfmodel
