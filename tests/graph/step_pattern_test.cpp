// Patterns of forward ops: operands, names, views in between, why one does not match; who reads a
// match from outside, and its backward functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "step/backward_groups.hpp"
#include "step/pattern.hpp"

namespace perfmodel {
namespace step_pattern_test {

using testing::ElementsAre;
using testing::IsEmpty;

// s = sigmoid(x), m = mul(y, s), m changed in place by relu_, v = view(m), a = add(v, y), in a
// module, with an op inside of add.
struct Program {
  GraphBuilder builder = GraphBuilder();
  TensorRef x = tensor(), y = tensor(), s = tensor(), m = tensor(), v = tensor(), a = tensor();
  ExecutionGraph graph = write();

  TensorRef tensor() { return builder.new_tensor(DType::kFloat32, {4, 2}); }

  ExecutionGraph write() {
    builder.begin_plain("program");
    builder.begin_plain("module");
    builder.leaf_op("aten::sigmoid", {x}, {s});
    builder.leaf_op("aten::mul.Tensor", {y, s}, {m});
    builder.leaf_op("aten::relu_", {m}, {m});
    builder.leaf_op("aten::view", {m, Shape{4, 2}}, {v});
    builder.end_op();
    builder.begin_op("aten::add.Tensor", {v, y, 1});
    builder.leaf_op("aten::empty.memory_format", {}, {a});
    builder.end_op({a});
    builder.end_op();
    return builder.finish();
  }
};

class PatternTest : public testing::Test {
 protected:
  const Program program_{};
  const StepView step_{program_.graph};
  const ForwardFlow& flow_ = step_.forward();
  const PatternMatcher matcher_{step_};

  std::int32_t op_called(std::string_view name) const {
    for (const std::int32_t op : flow_.ops()) {
      if (step_.graph().name(op) == name) return op;
    }
    ADD_FAILURE() << "no " << name;
    return flow_.ops().front();
  }
  const Version& result_of(std::string_view name) const {
    return *flow_.outputs(op_called(name)).front();
  }
  std::string mismatch(const Pattern& pattern, std::string_view name) const {
    Match match;
    const auto fits = matcher_.match(pattern, result_of(name), match);
    EXPECT_THAT(match.ops, IsEmpty());
    EXPECT_THAT(match.captures, IsEmpty());
    return fits ? "" : to_string(step_.graph(), fits.error());
  }
  std::string node(std::string_view name) const {
    return std::string(name) + " (node " + std::to_string(step_.graph().node(op_called(name)).id) +
           ")";
  }
};

TEST_F(PatternTest, FlowIsOfTheOutermostOps) {
  std::vector<std::string_view> names;
  for (const std::int32_t op : flow_.ops()) names.push_back(step_.graph().name(op));
  EXPECT_THAT(names,
              ElementsAre("aten::sigmoid", "aten::mul", "aten::relu_", "aten::view", "aten::add"));
  const std::int32_t add = op_called("aten::add");
  EXPECT_EQ(flow_.op_around(add + 1), add) << "what it calls";
  EXPECT_EQ(flow_.op_around(step_.graph().node(add).parent), -1);
}

TEST_F(PatternTest, OpsInPlaceMakeAnotherVersion) {
  const Version &before = result_of("aten::mul"), &after = result_of("aten::relu_");
  EXPECT_NE(&before, &after);
  EXPECT_EQ(step_.graph().tensors[before.tensor].id, step_.graph().tensors[after.tensor].id);
  EXPECT_THAT(before.readers, ElementsAre(op_called("aten::relu_")));
  EXPECT_THAT(after.readers, ElementsAre(op_called("aten::view")));
}

TEST_F(PatternTest, CapturesOperandsInEitherOrderThroughViews) {
  const Pattern pattern = either_order(
      "add", value("y"),
      op("relu", {either_order("mul", op("sigmoid", {value("x")}).named("s"), value("y"))})
          .through({"view"}));
  Match match;
  ASSERT_TRUE(matcher_.match(pattern, result_of("aten::add"), match).has_value());
  EXPECT_EQ(match["s"], &result_of("aten::sigmoid"));
  EXPECT_EQ(match["x"]->op, -1) << "it was there before";
  EXPECT_EQ(match["z"], nullptr);
  EXPECT_THAT(match.sorted_ops(), ElementsAre(op_called("aten::sigmoid"), op_called("aten::mul"),
                                              op_called("aten::relu_"), op_called("aten::add")));
}

TEST_F(PatternTest, SaysTheFirstMismatchOfTheOrderThatCameFurther) {
  const Pattern tanh = op("tanh", {value("x")});
  EXPECT_EQ(mismatch(either_order("mul", value("y"), tanh), "aten::mul"),
            "expected aten::tanh, found " + node("aten::sigmoid"));
  EXPECT_EQ(mismatch(either_order("mul", op("sigmoid"), tanh), "aten::mul"),
            "expected aten::tanh, found a tensor from outside")
      << "sigmoid is there, in the other order";
  EXPECT_EQ(mismatch(op("mul", {value("y")}), "aten::mul"),
            "expected aten::mul, found " + node("aten::mul"))
      << "it has two operands";
}

TEST_F(PatternTest, SaysWhatWasExpectedInTheWordsOfThePattern) {
  const Pattern gate = op("mul", {anything(), op("tanh", {value("x")})}).expecting("y tanh(x)");
  EXPECT_EQ(mismatch(op("relu", {gate}), "aten::relu_"),
            "expected y tanh(x), found " + node("aten::mul"));
  const Pattern inner = op("mul", {anything(), op("tanh", {value("x")}).expecting("tanh of x")});
  EXPECT_EQ(mismatch(op("relu", {inner.expecting("y tanh(x)")}), "aten::relu_"),
            "expected tanh of x, found " + node("aten::sigmoid"));
}

TEST_F(PatternTest, NamesAndSizesAreThoseOfOneVersion) {
  EXPECT_EQ(mismatch(op("mul", {value("y"), value("y")}), "aten::mul"),
            "expected the same y again, found " + node("aten::sigmoid"));
  Match match;
  const Pattern as_large = op("mul", {value("y").of_size("product"), anything()}).named("product");
  EXPECT_TRUE(matcher_.match(as_large, result_of("aten::mul"), match).has_value());
}

TEST_F(PatternTest, KnowsWhoReadsAMatchFromOutside) {
  const std::vector<std::int32_t> ops = {op_called("aten::sigmoid"), op_called("aten::mul")};
  const std::vector<const Version*> none, kept = {&result_of("aten::mul")};
  EXPECT_FALSE(read_outside(flow_, ops, kept).has_value());
  const auto outside = read_outside(flow_, ops, none);
  ASSERT_TRUE(outside.has_value());
  EXPECT_EQ(outside->op, op_called("aten::mul"));
  EXPECT_EQ(outside->reader, op_called("aten::relu_"));
}

// Each linear layer of a perceptron has one backward function for its product; the gradient comes
// in once, and goes to the layer below and to both parameters.
TEST(BackwardGroups, HaveTheGradientsThatComeInAndGoOut) {
  const ExecutionGraph graph = build_mlp({}).value();
  const StepView step(graph);
  std::vector<std::int32_t> group_of(graph.nodes.size(), -1);
  std::size_t count = 0;
  for (const std::int32_t op : step.forward().ops()) {
    if (graph.name(op) == "aten::linear") group_of[op] = static_cast<std::int32_t>(count++);
  }
  const auto groups = backward_groups(step, group_of, count);
  ASSERT_GE(count, 2U);
  for (const BackwardGroup& group : groups) {
    EXPECT_FALSE(group.functions.empty());
    ASSERT_EQ(group.incoming.size(), 1U);
    EXPECT_EQ(taken_gradient(graph, group.incoming[0]), group.incoming[0].tensor) << "no sum";
    EXPECT_GE(group.outgoing.size(), 2U);
  }
}

}  // namespace step_pattern_test
}  // namespace perfmodel
