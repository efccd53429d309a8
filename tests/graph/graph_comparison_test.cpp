#include "graph_comparison.hpp"

#include <gtest/gtest.h>

#include "builders/emit/memory.hpp"
#include "builders/emit/views.hpp"

namespace perfmodel {
namespace graph_comparison_test {

// Three top-level ops of an addition; `sizes` of its operands, ops in front of it.
struct Recipe {
  Shape sizes = {4, 8};
  int fills_before = 0, fills_after = 0;
  std::int64_t sequence = 10;
  Device device = {.kind = Device::Kind::kGpu, .index = 0};
  double alpha = 1;
  bool labelled = false;
};

// The same two nodes on every device.
void fill_with_zeros(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1) {
  graph.begin_op("aten::zero_", {x}, sequence);
  graph.leaf_op("aten::fill_.Scalar", {x, 0}, {x});
  graph.end_op({x});
}

ExecutionGraph made(const Recipe& recipe = {}) {
  GraphBuilder graph({.device = recipe.device});
  if (recipe.labelled) graph.begin_label("region");
  const TensorRef a = graph.new_tensor(DType::kFloat32, recipe.sizes);
  const TensorRef b = graph.new_tensor(DType::kFloat32, recipe.sizes);
  for (int i = 0; i < recipe.fills_before; ++i) fill_with_zeros(graph, b, recipe.sequence);
  graph.leaf_op("aten::add.Tensor", {a, b, recipe.alpha}, {like(graph, a)}, recipe.sequence);
  t(graph, a, recipe.sequence + 1);
  for (int i = 0; i < recipe.fills_after; ++i) fill_with_zeros(graph, b, recipe.sequence);
  if (recipe.labelled) graph.end_op();
  graph.switch_thread(GraphBuilder::kAutogradThread);
  fill_with_zeros(graph, a);
  return graph.finish();
}

TEST(GraphComparison, CountsEveryNodeButBookkeeping) {
  const GraphComparison comparison = compare_graphs(made(), made());
  EXPECT_TRUE(comparison.same()) << comparison;
  EXPECT_EQ(comparison.equal, 6u);  // add; t, transpose, as_strided; zero_, fill_
  EXPECT_EQ(comparison.report, "");
}

TEST(GraphComparison, NothingIsNotTheSame) {
  GraphBuilder first, second;
  EXPECT_FALSE(compare_graphs(first.finish(), second.finish()).same());
}

TEST(GraphComparison, SequenceNumbersCountFromTheFirst) {
  EXPECT_TRUE(compare_graphs(made(), made({.sequence = 700})).same());
}

TEST(GraphComparison, InsertedOpsAreOneDifferenceEach) {
  const GraphComparison comparison =
      compare_graphs(made(), made({.fills_before = 2, .fills_after = 1}));
  EXPECT_EQ(comparison.equal, 6u);
  EXPECT_EQ(comparison.only_first, 0u);
  EXPECT_EQ(comparison.only_second, 6u);  // each zero_ has its fill_
  const GraphComparison back = compare_graphs(made({.fills_before = 2, .fills_after = 1}), made());
  EXPECT_EQ(back.only_first, 6u);
  EXPECT_EQ(back.only_second, 0u);
}

TEST(GraphComparison, ReportIsAUnifiedDiff) {
  ComparisonOptions options;
  options.context = 1;
  EXPECT_EQ(compare_graphs(made(), made({.fills_after = 1}), options).report,
            "@@ thread 1, 4 | 4 @@\n"
            "      aten::as_strided(gpu:float32[4,8], [8 4], [1 8], None) -> (gpu:float32[8,4])\n"
            "+ aten::zero_ #0(gpu:float32[4,8]) -> (gpu:float32[4,8])\n"
            "+   aten::fill_(gpu:float32[4,8], 0) -> (gpu:float32[4,8])\n");
}

TEST(GraphComparison, AnotherShapeDiffers) {
  const GraphComparison comparison = compare_graphs(made(), made({.sizes = {4, 9}}));
  EXPECT_EQ(comparison.equal, 0u);
  EXPECT_EQ(comparison.only_first, 6u);
  EXPECT_EQ(comparison.only_second, 6u);
}

TEST(GraphComparison, DevicesAndScalarsCountOnlyIfAsked) {
  const ExecutionGraph other = made({.device = GraphBuilder::cpu(), .alpha = 2});
  ComparisonOptions options;
  options.devices = false;
  EXPECT_EQ(compare_graphs(made(), other, options).only_first, 1u);  // alpha
  options.scalars = false;
  EXPECT_TRUE(compare_graphs(made(), other, options).same());
  options.devices = true;
  EXPECT_EQ(compare_graphs(made(), other, options).equal, 0u);
}

TEST(GraphComparison, NodesCanBeLeftOutOrFlattened) {
  ComparisonOptions options;
  options.leave_out = [](const ExecutionGraph& graph, const Node& node) {
    return graph.name(node) == "aten::zero_";
  };
  EXPECT_TRUE(compare_graphs(made(), made({.fills_before = 3}), options).same());
  EXPECT_FALSE(compare_graphs(made(), made({.labelled = true})).same());
  options.flatten = [](const ExecutionGraph& graph, const Node& node) {
    return graph.name(node) == "region";
  };
  EXPECT_TRUE(compare_graphs(made(), made({.labelled = true}), options).same());
}

TEST(GraphComparison, ComparesARangeOfTheFirst) {
  const ExecutionGraph longer = made({.fills_before = 1});
  ComparisonOptions options;
  options.range.begin = 4;
  options.range.end = static_cast<std::int32_t>(longer.nodes.size());
  EXPECT_TRUE(compare_graphs(longer, made(), options).same());
}

}  // namespace graph_comparison_test
}  // namespace perfmodel
