#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "../scratch.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace channels_last_test {

ExecutionGraph small_resnet() {
  ResnetConfig config = *resnet_preset("resnet18");
  config.batch = 2;
  return *build_resnet(config);
}

// Inputs of ops of this name that are channels-last, and those that are not.
std::pair<int, int> orders(const ExecutionGraph& graph, std::string_view op) {
  std::pair<int, int> counts;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != op) continue;
    const Tensor& image = graph.tensors[graph.inputs(node)[0].index];
    ++(image.is_channels_last ? counts.first : counts.second);
  }
  return counts;
}

TEST(ChannelsLast, StridesTell) {
  EXPECT_TRUE(lie_channels_last(std::vector<std::int64_t>{2, 3, 4, 5},
                                std::vector<std::int64_t>{60, 1, 15, 3}));
  EXPECT_FALSE(lie_channels_last(std::vector<std::int64_t>{2, 3, 4, 5},
                                 std::vector<std::int64_t>{60, 20, 5, 1}));
  // One pixel, or one channel: both orders are the same.
  EXPECT_FALSE(lie_channels_last(std::vector<std::int64_t>{2, 3, 1, 1},
                                 std::vector<std::int64_t>{3, 1, 3, 3}));
  EXPECT_FALSE(lie_channels_last(std::vector<std::int64_t>{2, 1, 4, 5},
                                 std::vector<std::int64_t>{20, 1, 5, 1}));
}

TEST(ChannelsLast, ReachesEveryImageAndItsGradient) {
  const ExecutionGraph graph = small_resnet();
  const ExecutionGraph made = rewrite_channels_last(graph).value();
  for (const std::string op : {"aten::cudnn_convolution", "aten::cudnn_batch_norm", "aten::relu_",
                               "aten::max_pool2d", "aten::convolution_backward",
                               "aten::cudnn_batch_norm_backward", "aten::threshold_backward"}) {
    const auto before = orders(graph, op), after = orders(made, op);
    EXPECT_EQ(before.first, 0) << op;
    EXPECT_GT(after.first, 0) << op;
    EXPECT_EQ(after.second, 0) << op;
  }
  EXPECT_EQ(orders(made, "aten::addmm").first, 0);
}

TEST(ChannelsLast, IsAFactOfTheFile) {
  const ExecutionGraph made = rewrite_channels_last(small_resnet()).value();
  const std::string file = test_support::scratch_file("graph.json");
  ASSERT_TRUE(write_execution_graph(made, file).has_value());
  const auto read = read_execution_graph(file);
  ASSERT_TRUE(read.has_value()) << to_string(read.error());
  EXPECT_EQ(orders(*read, "aten::cudnn_convolution"), orders(made, "aten::cudnn_convolution"));
}

TEST(ChannelsLast, CastsOfAutocastKeepIt) {
  const PrecisionOptions half = {.precision = PrecisionOptions::Precision::kFp16};
  const ExecutionGraph graph = small_resnet();
  const ExecutionGraph first = rewrite_precision(*rewrite_channels_last(graph), half).value();
  EXPECT_EQ(orders(first, "aten::cudnn_convolution").second, 0);
  const ExecutionGraph last = rewrite_channels_last(*rewrite_precision(graph, half)).value();
  EXPECT_EQ(orders(last, "aten::cudnn_convolution").second, 0);
}

TEST(ChannelsLast, NeedsAConvolution) {
  const auto made = rewrite_channels_last(ExecutionGraph{});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().message, "expected a convolution to lay out images for, found none");
}

}  // namespace channels_last_test
}  // namespace perfmodel
