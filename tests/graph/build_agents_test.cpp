// The A3C agent (Mnih et al. 2016): sizes by hand, what acts, what learns, what is refused.

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/model_size.hpp"

namespace perfmodel {
namespace build_agents_test {

ExecutionGraph built(const A3cConfig& config) {
  auto graph = build_a3c(config);
  EXPECT_TRUE(graph) << to_string(graph.error());
  return std::move(*graph);
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  std::size_t found = 0;
  for (const Node& node : graph.nodes) found += graph.name(node) == name;
  return found;
}

// Frames of 84 become 20 and 9: filters 16 (8 8 4 + 1) = 4,112 and 32 (4 4 16 + 1) = 8,224, linear
// 256 (32 81 + 1) = 663,808, policy 6 (256 + 1) = 1,542: 677,686, which is the network of "Playing
// Atari with Deep Reinforcement Learning" (arXiv 1312.5602) for six actions. The value adds 257.
TEST(A3c, HasTheParametersOfItsPaper) {
  const A3cConfig config = a3c_preset("a3c").value();
  EXPECT_EQ(parameter_count(config), 677'686 + 257);
  EXPECT_EQ(model_size(built(config)).parameters, 677'943);
  // The cell: 4 gates of 256 (256 + 256 + 2).
  const A3cConfig lstm = a3c_preset("a3c-lstm").value();
  EXPECT_EQ(parameter_count(lstm), 677'943 + 526'336);
  EXPECT_EQ(model_size(built(lstm)).parameters, 1'204'279);
  A3cConfig breakout = config;
  breakout.actions = 4;
  EXPECT_EQ(model_size(built(breakout)).parameters, 677'943 - 2 * 257);
}

// Multiply-adds of a frame: 20^2 16 256 = 1,638,400, 9^2 32 256 = 663,552, 2592 256 = 663,552. 16
// agents act five times (policy: 6 256) and value once (256); they learn from 80 frames, three
// times the products except for the gradient of the frames.
TEST(A3c, ActsAndLearns) {
  const A3cConfig config = a3c_preset("a3c").value();
  const double trunk = 1'638'400 + 663'552 + 663'552;
  const double acting = 16 * (6 * trunk + 5 * 6 * 256 + 256);
  const double learning = 80 * (3 * (trunk + 7 * 256) - 1'638'400);
  const ExecutionGraph graph = built(config);
  EXPECT_DOUBLE_EQ(model_size(graph).matrix_flop, 2 * (acting + learning));
  EXPECT_EQ(count(graph, "aten::conv2d"), 2u * (5 + 1 + 1));
  EXPECT_EQ(count(graph, "ConvolutionBackward0"), 2u);  // the acting pass has no gradient
}

TEST(A3c, ActingIsOutsideOfAutograd) {
  const ExecutionGraph graph = built(a3c_preset("a3c").value());
  std::size_t without_gradient = 0;
  for (const Node& node : graph.nodes) {
    without_gradient += graph.name(node) == "aten::conv2d" && node.seq_id < 0;
  }
  EXPECT_EQ(without_gradient, 2u * 6);
}

// One copy of the frames per step in, one of the probabilities or the value out.
TEST(A3c, TheHostWaitsForEachStepOfTheRollout) {
  A3cConfig config = a3c_preset("a3c").value();
  config.rollout = 3;
  const ExecutionGraph graph = built(config);
  std::size_t in = 0, out = 0;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::copy_") continue;
    const auto arguments = graph.inputs(node);
    const Tensor& to = graph.tensors[arguments[0].index];
    const Tensor& from = graph.tensors[arguments[1].index];
    in += to.on_gpu() && !from.on_gpu();
    out += !to.on_gpu() && from.on_gpu();
  }
  EXPECT_EQ(in, 3u + 1 + 2);  // frames, those that are only valued, actions and returns
  EXPECT_EQ(out, 3u + 1);
}

TEST(A3c, TheCellRunsStepByStep) {
  A3cConfig config = a3c_preset("a3c-lstm").value();
  config.rollout = 4;
  const ExecutionGraph graph = built(config);
  EXPECT_EQ(count(graph, "aten::_thnn_fused_lstm_cell"), 4u + 1 + 4);
  EXPECT_EQ(count(graph, "ThnnFusedLstmCellBackward0"), 4u);
}

TEST(A3c, EveryBackwardFunctionHasItsForwardOp) {
  const ExecutionGraph graph = built(a3c_preset("a3c-lstm").value());
  const auto partners = forward_partners(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.scope == Scope::kBackward && node.seq_id >= 0) {
      EXPECT_GE(partners[i], 0) << graph.name(node);
    }
  }
}

TEST(A3c, ImpossibleSizesAreRefused) {
  const auto message = [](const A3cConfig& config) {
    const auto graph = build_a3c(config);
    return graph ? std::string("built") : graph.error().message;
  };
  A3cConfig config;
  config.resolution = 19;  // 19 -> 3 -> nothing
  EXPECT_EQ(message(config), "resolution: expected frames of at least 20 x 20, found 19");
  config.resolution = 20;  // 20 -> 4 -> 1
  EXPECT_EQ(message(config), "built");
  config.channels = {16, 32, 64};
  EXPECT_EQ(message(config), "channels: expected two convolutions, found 3");
  config = {};
  config.rollout = 0;
  EXPECT_EQ(message(config), "rollout: expected at least 1, found 0");
  config = {};
  config.batch = std::int64_t{1} << 50;
  EXPECT_EQ(message(config),
            "frames: expected less than 2^60 elements, found 1125899906842624 x 5 x 4 x 84 x 84");
  EXPECT_EQ(a3c_preset("a2c").error().message,
            "expected an A3C preset (a3c, a3c-lstm), found \"a2c\"");
}

}  // namespace build_agents_test
}  // namespace perfmodel
