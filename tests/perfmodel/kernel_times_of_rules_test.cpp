// Traced times of ops whose rule gives fewer kernels than the trace has.
#include "perfmodel/predict.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "../predictors/graph_fixture.hpp"
#include "builders/emit/graph_builder.hpp"

namespace perfmodel {
namespace kernel_times_of_rules_test {

TEST(KernelTimesOfRules, OneKernelTakesAllThatTheTraceHasOfItsOp) {
  // A library sets memory before the product, of which the rule knows nothing.
  GraphBuilder graph;
  const TensorRef a = graph.new_tensor(DType::kFloat32, {8, 8});
  graph.leaf_op("aten::mm", {a, a}, {graph.new_tensor(DType::kFloat32, {8, 8})});
  const ExecutionGraph made = graph.finish();
  const auto op = std::ranges::find_if(
      made.nodes, [&](const Node& node) { return made.name(node) == "aten::mm"; });
  const auto node = static_cast<std::int32_t>(op - made.nodes.begin());
  KernelTimes times;
  times.add(node, 0, 3, false);
  times.add(node, 1, 10, false);
  const auto prediction =
      predict(made, test_support::round_gpu(), OverheadTable{}, {.kernel_times = &times});
  ASSERT_TRUE(prediction) << to_string(prediction.error());
  EXPECT_NEAR(prediction->kernel_sum_us, 13, 1e-9);
}

}  // namespace kernel_times_of_rules_test
}  // namespace perfmodel
