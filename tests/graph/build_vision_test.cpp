// Sizes of built image models against closed forms, and refusals of builders. Numbers of parameters
// are from torchvision 0.14; multiply-adds per image were counted there by hooks on every
// convolution and linear layer.

#include <gtest/gtest.h>

#include <cmath>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/model_size.hpp"

namespace perfmodel {
namespace build_vision_test {

ExecutionGraph good(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

std::string message(const Result<ExecutionGraph>& graph) {
  return graph ? "built" : graph.error().message;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  std::size_t found = 0;
  for (const Node& node : graph.nodes) found += graph.name(node) == name;
  return found;
}

struct Known {
  const char* name;
  std::int64_t parameters;
  double multiply_adds = 0;  // per image; 0: not counted
  double first_layer = 0;    // the part in the layer whose input has no gradient
  std::int64_t resolution = 0;
};

// Forward, then gradients of inputs and weights: three times the products, except in the first
// layer.
template <class Config>
void expect_known(Config config, Result<ExecutionGraph> (*build)(const Config&),
                  const Known& known) {
  SCOPED_TRACE(known.name);
  config.batch = 2;
  if (known.resolution > 0) config.resolution = known.resolution;
  const ModelSize size = model_size(good(build(config)));
  EXPECT_EQ(size.parameters, known.parameters);
  if (known.multiply_adds == 0) return;
  EXPECT_EQ(size.matrix_flop, 2 * 2 * (3 * known.multiply_adds - known.first_layer));
  config.training.phase = TrainingOptions::Phase::kForward;
  EXPECT_EQ(model_size(good(build(config))).matrix_flop, 2 * 2 * known.multiply_adds);
}

TEST(BuiltVision, ResnetsHaveTheirSizes) {
  for (const Known& known :
       {Known{"resnet18", 11'689'512, 1'814'073'344, 118'013'952}, Known{"resnet34", 21'797'672},
        Known{"resnet50", 25'557'032, 4'089'184'256, 118'013'952}, Known{"resnet101", 44'549'160},
        Known{"resnet152", 60'192'808, 11'513'626'624, 118'013'952},
        Known{"resnext50_32x4d", 25'028'904, 4'230'479'872, 118'013'952},
        Known{"resnext101_32x8d", 88'791'336}, Known{"wide_resnet50_2", 68'883'240},
        Known{"wide_resnet101_2", 126'886'696},
        Known{"resnet18", 11'689'512, 223'765'696, 10'245'312, 65}}) {
    expect_known(*resnet_preset(known.name), build_resnet, known);
  }
}

TEST(BuiltVision, InceptionHasItsSize) {
  expect_known(*inception_preset("inception_v3"), build_inception,
               {"inception_v3", 27'161'264, 5'718'899'296, 19'181'664});
}

TEST(BuiltVision, InceptionWithoutAuxiliaryClassifier) {
  InceptionConfig config;
  config.auxiliary = false;
  config.resolution = 75;
  // Without 768 x 128 and 128 x 768 x 5 x 5 filters, their norms, 768 x 1000 weights and a bias.
  const std::int64_t auxiliary = 768 * 128 + 128 * 768 * 25 + 2 * (128 + 768) + 768 * 1000 + 1000;
  EXPECT_EQ(model_size(good(build_inception(config))).parameters, 27'161'264 - auxiliary);
}

TEST(BuiltVision, NetworksWithoutBranchesHaveTheirSizes) {
  for (const Known& known :
       {Known{"vgg11", 132'863'336}, Known{"vgg16", 138'357'544, 15'470'264'320, 86'704'128},
        Known{"vgg19", 143'667'240}, Known{"vgg16_bn", 138'365'992},
        Known{"alexnet", 61'100'840, 714'188'480, 70'276'800}}) {
    expect_known(*vgg_preset(known.name), build_vgg, known);
  }
}

TEST(BuiltVision, WganHasTheSizeOfDcgan) {
  WganConfig config = *wgan_preset("wgan");
  const ExecutionGraph critic = good(build_wgan(config));
  EXPECT_EQ(model_size(critic).parameters, 2'765'568);
  EXPECT_EQ(count(critic, "aten::clamp_"), 11u);             // 5 filters, 3 norms
  EXPECT_EQ(count(critic, "aten::cudnn_convolution"), 10u);  // real and generated images
  EXPECT_EQ(count(critic, "aten::cudnn_convolution_transpose"), 5u);
  EXPECT_EQ(count(critic, "ConvolutionBackward0"), 10u);
  config.step = WganConfig::Step::kGenerator;
  const ExecutionGraph generator = good(build_wgan(config));
  EXPECT_EQ(model_size(generator).parameters, 3'576'704);
  EXPECT_EQ(count(generator, "aten::clamp_"), 0u);
  EXPECT_EQ(count(generator, "ConvolutionBackward0"), 10u);  // through the critic's five
}

// ResNet-50 without its head; 3x3, objectness and offset filters with biases; four linear layers.
TEST(BuiltVision, FasterRcnnHasItsSize) {
  FasterRcnnConfig config;
  config.resolution = 320;
  config.candidates = 1500;  // out of 10 x 10 x 15 anchors
  config.kept = 600;
  const ExecutionGraph graph = good(build_faster_rcnn(config));
  const std::int64_t trunk = 25'557'032 - 2048 * 1000 - 1000;
  const std::int64_t proposals = 2048 * 2048 * 9 + 2048 + (2048 + 1) * 15 + (2048 + 1) * 60;
  const std::int64_t head = (2048 * 49 + 1) * 1024 + (1024 + 1) * 1024 + (1024 + 1) * (91 + 4 * 91);
  EXPECT_EQ(model_size(graph).parameters, trunk + proposals + head);
  EXPECT_EQ(count(graph, "torchvision::nms"), 2u);        // one per image
  EXPECT_EQ(count(graph, "torchvision::roi_align"), 2u);  // autograd's call and the kernel's
  EXPECT_EQ(count(graph, "torchvision::_roi_align_backward"), 2u);
  EXPECT_EQ(count(graph, "SmoothL1LossBackward0"), 2u);
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "aten::cross_entropy_loss") continue;
    const auto shape = graph.shape(graph.tensors[graph.inputs(node).front().index]);
    EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()),
              (std::vector<std::int64_t>{2 * 512, 91}));
  }
}

// torchvision 0.14, fasterrcnn_resnet50_fpn: 41,755,286, whose norms of 53,120 do not learn.
TEST(BuiltVision, FasterRcnnWithAPyramidIsTorchvisions) {
  FasterRcnnConfig config = *faster_rcnn_preset("fasterrcnn_resnet50_fpn");
  config.batch = 1;
  const ExecutionGraph graph = good(build_faster_rcnn(config));
  EXPECT_EQ(model_size(graph).parameters, 41'755'286 + 53'120);
  EXPECT_EQ(count(graph, "UpsampleNearest2DBackward0"), 3u);
  EXPECT_EQ(count(graph, "aten::upsample_nearest2d"), 2u * 3);  // autograd's call and the kernel's
  EXPECT_EQ(count(graph, "torchvision::roi_align"), 2u * 4);
  config.sampled = 510;
  EXPECT_EQ(message(build_faster_rcnn(config)),
            "sampled: expected a multiple of the 4 maps of a pyramid, found 510");
  EXPECT_EQ(faster_rcnn_preset("fpn").error().message,
            "expected a Faster R-CNN preset (faster_rcnn, fasterrcnn_resnet50_fpn), found \"fpn\"");
}

TEST(BuiltVision, MlpHasItsSize) {
  MlpConfig config;
  config.widths = {7, 5, 3};
  config.batch = 4;
  const ModelSize size = model_size(good(build_mlp(config)));
  EXPECT_EQ(size.parameters, 7 * 5 + 5 + 5 * 3 + 3);
  EXPECT_EQ(size.matrix_flop, 2 * 4 * (2 * 7 * 5 + 3 * 5 * 3));  // no gradient of the features
}

TEST(BuiltVision, StepLabelsAndPlacesOfZeroGrad) {
  MlpConfig config;
  config.training.regions = TrainingOptions::Regions::kLossInBackward;
  const ExecutionGraph graph = good(build_mlp(config));
  for (const char* name : {"## forward ##", "## backward ##", "## optimizer ##"}) {
    EXPECT_EQ(count(graph, name), 1u) << name;
  }
  config.training.phase = TrainingOptions::Phase::kForward;
  const ExecutionGraph forward = good(build_mlp(config));
  EXPECT_EQ(count(forward, "Optimizer.zero_grad#SGD.zero_grad"), 0u);
  EXPECT_EQ(count(forward, "aten::cross_entropy_loss"), 1u);
}

TEST(BuiltVision, UnknownPresetsNameTheNearestOnes) {
  EXPECT_EQ(resnet_preset("resnet5").error().message,
            "expected a ResNet preset (resnet50, resnet18, resnet34, resnet152, resnet101, "
            "resnext50_32x4d, wide_resnet50_2, resnext101_32x8d, ...), found \"resnet5\"");
  EXPECT_EQ(mlp_preset("x").error().message, "expected an MLP preset (linear, mnist), found \"x\"");
  EXPECT_EQ(mlp_preset("x").error().code, ErrorCode::kUnknownName);
}

TEST(BuiltVision, ImpossibleSizesAreRefused) {
  ResnetConfig resnet;
  resnet.batch = 0;
  EXPECT_EQ(message(build_resnet(resnet)), "batch: expected at least 1, found 0");
  resnet.batch = 1;
  resnet.resolution = 32;
  EXPECT_EQ(message(build_resnet(resnet)),
            "batch: expected more than one value per channel for batch norm, found one image of "
            "1 x 1 after the last stage");
  resnet.resolution = 33;
  EXPECT_EQ(message(build_resnet(resnet)), "built");
  resnet.groups = 32;
  EXPECT_EQ(message(build_resnet(resnet)),
            "groups: expected 1 of width 64 (only bottlenecks have others), found 32 of width 64");
  InceptionConfig inception;
  inception.resolution = 298;
  EXPECT_EQ(message(build_inception(inception)), "resolution: expected at least 299, found 298");
  inception.resolution = 299;
  inception.dropout = 1;
  EXPECT_EQ(message(build_inception(inception)),
            "dropout: expected at least 0 and less than 1, found 1");
  VggConfig alexnet = *vgg_preset("alexnet");
  alexnet.resolution = 62;
  EXPECT_EQ(message(build_vgg(alexnet)),
            "resolution: expected an image of which every layer leaves something, found 62");
  alexnet.resolution = 63;
  EXPECT_EQ(message(build_vgg(alexnet)), "built");
  FasterRcnnConfig detector;
  detector.resolution = 320;
  EXPECT_EQ(message(build_faster_rcnn(detector)),
            "candidates: expected at least the 1000 that are kept and at most the 1500 anchors of "
            "an image, found 2000");
  detector.resolution = 800;
  detector.sampled = 1001;
  EXPECT_EQ(message(build_faster_rcnn(detector)),
            "sampled: expected at most the 1000 regions that are kept, found 1001");
  WganConfig wgan;
  wgan.image = 48;
  EXPECT_EQ(message(build_wgan(wgan)), "image: expected a power of two, found 48");
  wgan.image = 64;
  wgan.training.pytorch.device = {.kind = Device::Kind::kCpu};
  EXPECT_EQ(message(build_wgan(wgan)),
            "device: expected gpu for transposed convolutions, found cpu");
  MlpConfig mlp;
  mlp.widths = {5};
  EXPECT_EQ(message(build_mlp(mlp)), "widths: number of them: expected at least 2, found 1");
  mlp.widths = {std::int64_t{1} << 40, std::int64_t{1} << 30};
  EXPECT_EQ(message(build_mlp(mlp)),
            "weights: expected less than 2^60 elements, found 1073741824 x 1099511627776");
}

}  // namespace build_vision_test
}  // namespace perfmodel
