#include "step/losses.hpp"

#include <gtest/gtest.h>

#include "perfmodel/graph/build_recommenders.hpp"

namespace perfmodel {
namespace step_losses_test {

ExecutionGraph small_dlrm() {
  DlrmConfig config;
  config.bottom_mlp = {4, 2};
  config.top_mlp = {1};
  config.tables = {{.num_rows = 100, .dim = 2, .pooling_factor = 3}};
  config.batch = 8;
  return *build_dlrm(config);
}

TEST(StepLosses, ALossHasItsGradientAndTheFunctionThatTakesIt) {
  const ExecutionGraph graph = small_dlrm();
  const StepView step(graph);
  const std::vector<Loss> found = losses(step);
  ASSERT_EQ(found.size(), 1U);
  const std::int32_t maker =
      step.tensors().maker(step.tensors().of(graph.tensors[found[0].tensor]));
  EXPECT_EQ(graph.name(maker), "aten::binary_cross_entropy");
  EXPECT_EQ(graph.name(found[0].ones), "aten::ones_like");
  EXPECT_EQ(graph.name(found[0].function.function), "BinaryCrossEntropyBackward0");
  EXPECT_EQ(graph.tensors[found[0].gradient].id,
            graph.tensors[graph.outputs(found[0].ones)[0].index].id);
}

TEST(StepLosses, APassFromAnythingElseHasNone) {
  ExecutionGraph graph = small_dlrm();
  const std::int32_t ones = losses(StepView(graph))[0].ones;
  graph.node(ones).name = graph.names.intern("aten::full_like");
  EXPECT_TRUE(losses(StepView(graph)).empty());
}

}  // namespace step_losses_test
}  // namespace perfmodel
