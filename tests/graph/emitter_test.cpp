// Ops that rows of ops/rows.txt describe: their calls and their derivatives.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "builders/emit/activation.hpp"
#include "builders/emit/pointwise.hpp"
#include "builders/emit/reduction.hpp"
#include "builders/models/training_step.hpp"
#include "ops/catalogue.hpp"
#include "ops/programs.hpp"

namespace perfmodel {
namespace emitter_test {

using testing::ElementsAre;

// Names of the nodes below the first one of this name.
std::vector<std::string> calls_in(const ExecutionGraph& graph, std::string_view name) {
  std::vector<std::string> names;
  for (std::int32_t node = 0; node < static_cast<std::int32_t>(graph.nodes.size()); ++node) {
    if (graph.name(node) != name) continue;
    for (const std::int32_t child : graph.children(node)) names.emplace_back(graph.name(child));
    break;
  }
  return names;
}

// One step whose loss is the sum of `function` of a parameter [4, 8].
template <class Function>
ExecutionGraph step_of_sum(Function function) {
  TrainingOptions options;
  options.optimizer = TrainingOptions::Optimizer::kNoOptimizer;
  TrainingStep step(options);
  const TensorRef x = step.parameter({4, 8});
  return step.run([&] { return sum(step.tape(), function(step.tape(), x)); });
}

// PyTorch's special_erfcx is nowhere but in its row: its derivative is (2 x y - 2 / sqrt(pi)) grad.
TEST(Emitter, WritesAnOpThatOnlyItsRowKnows) {
  const ExecutionGraph graph = step_of_sum(
      [](AutogradTape& tape, TensorRef x) { return emit(tape, "aten::special_erfcx", {x}); });
  EXPECT_THAT(calls_in(graph, "aten::special_erfcx"), ElementsAre());
  EXPECT_THAT(calls_in(graph, "SpecialErfcxBackward0"),
              ElementsAre("aten::mul", "aten::mul", "aten::sub", "aten::mul"));
  const Op* row = find_op("aten::special_erfcx");
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(price_rule(*row), "pointwise");
  EXPECT_EQ(size_rule(*row), "same_shape");
}

TEST(Emitter, WritesTheCallsOfARow) {
  const ExecutionGraph graph =
      step_of_sum([](AutogradTape& tape, TensorRef x) { return relu(tape, x); });
  EXPECT_THAT(calls_in(graph, "aten::relu"), ElementsAre("aten::clamp_min"));
  EXPECT_THAT(calls_in(graph, "ReluBackward0"), ElementsAre("aten::threshold_backward"));
}

TEST(Emitter, GivesGradientsToTensorsThatNeedThem) {
  const ExecutionGraph both =
      step_of_sum([](AutogradTape& tape, TensorRef x) { return mul(tape, x, x); });
  EXPECT_THAT(calls_in(both, "MulBackward0"), ElementsAre("aten::mul", "aten::mul"));
  const ExecutionGraph one = step_of_sum([](AutogradTape& tape, TensorRef x) {
    return mul(tape, x, tape.graph().new_tensor(DType::kFloat32, {4, 8}));
  });
  EXPECT_THAT(calls_in(one, "MulBackward0"), ElementsAre("aten::mul"));
}

TEST(Programs, EveryRowCanBeRead) {
  const OpProgram& program = program_of("aten::leaky_relu");  // reads all of them
  EXPECT_EQ(program.like, "self");
  EXPECT_EQ(program.node, "LeakyReluBackward0");
  ASSERT_EQ(program.gradients.size(), 1u);
  EXPECT_EQ(program.gradients.front().target, "self");
  EXPECT_TRUE(program_of("aten::add_.Tensor").in_place);
  EXPECT_FALSE(program_of("aten::add.out").in_place);
}

}  // namespace emitter_test
}  // namespace perfmodel
