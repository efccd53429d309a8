// Which op PyTorch runs a convolution as, after its own `_select_conv_backend`.

#include "ops/convolution_backend.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "builders/emit/convolution.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"

namespace perfmodel {
namespace convolution_backend_test {

using Device = ConvolutionFacts::Device;
using Vendor = RetargetOptions::Vendor;
using enum DType;
using enum ConvolutionBackend;

// 64 channels of 8 images of 56 x 56 pixels, each with a 3 x 3 filter of its own.
ConvolutionFacts depthwise(Device device, DType dtype = kFloat32) {
  return {.device = device,
          .dtype = dtype,
          .input = {8, 64, 56, 56},
          .weight = {64, 1, 3, 3},
          .stride = {1, 1},
          .dilation = {1, 1},
          .groups = 64};
}

ConvolutionFacts depthwise_3d(Device device) {
  ConvolutionFacts facts = depthwise(device);
  facts.input = {8, 64, 4, 56, 56};
  facts.weight = {64, 1, 3, 3, 3};
  facts.stride = facts.dilation = {1, 1, 1};
  return facts;
}

TEST(ConvolutionBackend, FollowsDeviceTypeAndLayout) {
  constexpr Device kCpu = Device::kCpu, kNvidia = Device::kNvidia, kAmd = Device::kAmd;
  struct Case {
    const char* name;
    ConvolutionFacts facts;
    ConvolutionBackend backend;
  };
  const auto with = [](ConvolutionFacts facts, auto change) {
    change(facts);
    return facts;
  };
  const auto dense = [](ConvolutionFacts& facts) { facts.groups = 1, facts.weight[1] = 64; };
  const auto transposed = [](ConvolutionFacts& facts) { facts.transposed = true; };
  const auto grouped = [](ConvolutionFacts& facts) { facts.groups = 32, facts.weight[1] = 2; };
  const auto multiplied = [](ConvolutionFacts& facts) { facts.weight[0] = 128; };
  const auto dilated = [](ConvolutionFacts& facts) { facts.dilation = {2, 2}; };
  const auto channels_last = [](ConvolutionFacts& facts) { facts.channels_last = true; };
  const Case cases[] = {
      {"dense on a CPU", with(depthwise(kCpu), dense), kOneDnn},
      {"depthwise on a CPU", depthwise(kCpu), kOneDnn},

      {"dense", with(depthwise(kNvidia), dense), kCudnn},
      {"transposed", with(depthwise(kNvidia), transposed), kCudnnTransposed},
      {"two channels per group", with(depthwise(kNvidia), grouped), kCudnn},
      {"depthwise", depthwise(kNvidia), kDepthwise2d},
      {"two results per channel", with(depthwise(kNvidia), multiplied), kDepthwise2d},
      {"dilated depthwise", with(depthwise(kNvidia), dilated), kDepthwise2d},
      {"depthwise in bf16", depthwise(kNvidia, kBFloat16), kDepthwise2d},
      {"depthwise in fp16", depthwise(kNvidia, kFloat16), kCudnn},
      {"dilated depthwise in fp16", with(depthwise(kNvidia, kFloat16), dilated), kDepthwise2d},
      {"channels-last depthwise", with(depthwise(kNvidia), channels_last), kCudnn},
      {"channels-last depthwise in bf16", with(depthwise(kNvidia, kBFloat16), channels_last),
       kCudnn},
      {"channels-last depthwise in fp64", with(depthwise(kNvidia, kFloat64), channels_last),
       kDepthwise2d},
      {"depthwise in 3-D", depthwise_3d(kNvidia), kDepthwise3d},

      {"dense on AMD", with(depthwise(kAmd), dense), kMiopen},
      {"transposed on AMD", with(depthwise(kAmd), transposed), kMiopenTransposed},
      {"depthwise on AMD", depthwise(kAmd), kMiopenDepthwise},
      {"depthwise in 3-D on AMD", depthwise_3d(kAmd), kMiopenDepthwise},
      {"channels-last depthwise on AMD", with(depthwise(kAmd), channels_last), kMiopenDepthwise},
      {"dilated depthwise on AMD", with(depthwise(kAmd), dilated), kDepthwise2d},
      {"depthwise in fp64 on AMD", depthwise(kAmd, kFloat64), kDepthwise2d},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(convolution_op(convolution_backend(each.facts)), convolution_op(each.backend))
        << each.name;
  }
}

// Row-major images in fp16, both sides of each threshold.
TEST(ConvolutionBackend, FollowsTheSizesOfDepthwiseImagesInFp16) {
  struct Case {
    std::int64_t batch, channels, height, width, filter, stride;
    ConvolutionBackend backend;
  };
  const Case cases[] = {
      {8, 32, 14, 14, 3, 1, kCudnn},        {8, 31, 14, 14, 3, 1, kDepthwise2d},
      {8, 32, 14, 7, 3, 1, kCudnn},         {8, 32, 14, 6, 3, 1, kDepthwise2d},
      {8, 32, 14, 14, 5, 1, kCudnn},        {8, 32, 14, 14, 7, 1, kDepthwise2d},
      {8, 32, 1, 6, 7, 1, kCudnn},          {8, 32, 1, 6, 7, 2, kDepthwise2d},
      {8, 512, 14, 14, 3, 2, kCudnn},       {8, 511, 14, 14, 3, 2, kDepthwise2d},
      {8, 256, 28, 28, 3, 2, kCudnn},       {8, 256, 28, 27, 3, 2, kDepthwise2d},
      {8, 255, 28, 28, 3, 2, kDepthwise2d}, {8, 512, 14, 14, 3, 3, kDepthwise2d},
      {1, 32, 56, 56, 3, 2, kCudnn},        {1, 32, 28, 28, 1, 2, kCudnn},
      {1, 32, 29, 29, 1, 2, kDepthwise2d},  {16, 128, 7, 7, 1, 2, kCudnn},
      {17, 128, 7, 7, 1, 2, kDepthwise2d},  {16, 127, 7, 7, 1, 2, kDepthwise2d},
      {16, 128, 7, 8, 1, 2, kDepthwise2d},
  };
  for (const Case& c : cases) {
    const ConvolutionFacts facts = {.dtype = kFloat16,
                                    .input = {c.batch, c.channels, c.height, c.width},
                                    .weight = {c.channels, 1, c.filter, c.filter},
                                    .stride = {c.stride, c.stride},
                                    .dilation = {1, 1},
                                    .groups = c.channels};
    EXPECT_EQ(convolution_op(convolution_backend(facts)), convolution_op(c.backend))
        << c.batch << " x " << c.channels << " x " << c.height << " x " << c.width << ", filter "
        << c.filter << ", stride " << c.stride;
  }
}

TEST(ConvolutionBackend, ChoosesWhatWasRecorded) {
  const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto graph =
      read_execution_graph(std::filesystem::path(root) / "traces" / "resnet18_et.json.gz");
  ASSERT_TRUE(graph) << to_string(graph.error());
  int compared = 0;
  for (const Node& node : graph->nodes) {
    if (graph->name(node) != "aten::_convolution") continue;
    const auto inputs = graph->inputs(node);
    const auto shape = [&](std::size_t at) {
      const auto extents = graph->shape(graph->tensors[inputs[at].index]);
      return std::vector(extents.begin(), extents.end());
    };
    const auto list = [&](std::size_t at) {
      std::vector<std::int64_t> made;
      for (const Argument& each : graph->elements(inputs[at])) made.push_back(each.integer);
      return made;
    };
    const ConvolutionFacts facts = {.input = shape(0),
                                    .weight = shape(1),
                                    .stride = list(3),
                                    .dilation = list(5),
                                    .groups = inputs[8].integer,
                                    .transposed = inputs[6].integer != 0};
    const auto children = graph->children(node);
    ASSERT_FALSE(children.empty());
    const Node& child = graph->nodes[static_cast<std::size_t>(children.front())];
    EXPECT_EQ(convolution_op(convolution_backend(facts)), graph->name(child));
    ++compared;
  }
  EXPECT_EQ(compared, 20);
}

// A step with one depthwise convolution, as it is built.
ExecutionGraph built(Device device) {
  PyTorch pytorch;
  if (device == Device::kCpu) pytorch.device = GraphBuilder::cpu();
  GraphBuilder graph(pytorch);
  graph.begin_plain("step");
  AutogradTape tape(graph);
  const TensorRef x = graph.new_tensor(kFloat32, {8, 64, 56, 56});
  const TensorRef weight = graph.new_tensor(kFloat32, {64, 1, 3, 3});
  const TensorRef bias = graph.new_tensor(kFloat32, {64});
  conv2d(tape, x, weight, bias, {.padding = {1, 1}, .groups = 64});
  graph.end_op();
  return graph.finish();
}

std::string children_of_convolution(const ExecutionGraph& graph) {
  std::string made;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::_convolution") continue;
    for (const std::int32_t child : graph.children(node)) {
      made += std::string(graph.name(graph.nodes[static_cast<std::size_t>(child)])) + " ";
    }
  }
  return made;
}

TEST(ConvolutionBackend, BuilderAndRetargetingAgree) {
  EXPECT_EQ(children_of_convolution(built(Device::kCpu)), "aten::mkldnn_convolution ");
  EXPECT_EQ(children_of_convolution(built(Device::kNvidia)), "aten::_conv_depthwise2d ");
  const auto nvidia = retarget(built(Device::kCpu), {.vendor = Vendor::kNvidia});
  ASSERT_TRUE(nvidia) << nvidia.error().message;
  EXPECT_EQ(children_of_convolution(*nvidia), "aten::_conv_depthwise2d ");
  const auto amd = retarget(built(Device::kCpu), {.vendor = Vendor::kAmd});
  ASSERT_TRUE(amd) << amd.error().message;
  EXPECT_EQ(children_of_convolution(*amd), "aten::miopen_depthwise_convolution ");
}

}  // namespace convolution_backend_test
}  // namespace perfmodel
