// Which weight an optimizer changes with which gradient.
#include "step/optimizer_weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace step_optimizer_weights_test {

// Two layers of 8 x 8 with biases.
ExecutionGraph small_mlp() {
  MlpConfig config;
  config.widths.assign(3, 8);
  config.training.optimizer = TrainingOptions::Optimizer::kAdam;
  return build_mlp(config).value();
}

// By id of the gradient: the weight's mention.
std::map<std::int64_t, std::pair<Tensor, Tensor>> pairs_of(const StepView& view) {
  const auto weights = weights_by_gradient(view);
  std::map<std::int64_t, std::pair<Tensor, Tensor>> pairs;
  for (const Tensor& gradient : view.graph().tensors) {
    if (weights[gradient] < 0) continue;
    pairs[gradient.id] = {gradient, view.graph().tensors[weights[gradient]]};
  }
  return pairs;
}

TEST(OptimizerWeights, EachGradientHasItsOwn) {
  const ExecutionGraph graph = small_mlp();
  const StepView view(graph);
  const auto pairs = pairs_of(view);
  EXPECT_EQ(pairs.size(), 4u);
  std::set<std::int64_t> weights;
  for (const auto& [id, pair] : pairs) {
    EXPECT_NE(pair.first.id, pair.second.id);
    EXPECT_TRUE(std::ranges::equal(graph.shape(pair.first), graph.shape(pair.second)));
    weights.insert(pair.second.id);
  }
  EXPECT_EQ(weights.size(), 4u);
}

// The optimizer changes its fp32 copy; the model's weight is in half precision.
TEST(OptimizerWeights, IsTheModelsOwnWhereTheOptimizerHasACopy) {
  const auto graph = rewrite_precision(
      small_mlp(), {.precision = PrecisionOptions::Precision::kBf16, .master_weights = true});
  ASSERT_TRUE(graph);
  const StepView view(*graph);
  const auto pairs = pairs_of(view);
  EXPECT_EQ(pairs.size(), 4u);
  for (const auto& [id, pair] : pairs) EXPECT_EQ(pair.second.dtype, DType::kBFloat16);
}

}  // namespace step_optimizer_weights_test
}  // namespace perfmodel
