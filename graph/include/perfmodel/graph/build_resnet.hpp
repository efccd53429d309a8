#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A residual network (He et al., 2015) as torchvision has it: a 7x7 stem, four stages of blocks,
/// mean over the image, one linear layer, cross entropy. Stages have 64, 128, 256 and 512 channels
/// (four times as many behind bottlenecks); all but the first halve the image.
struct ResnetConfig {
  std::string name = "resnet18";
  enum class Block { kBasic, kBottleneck } block = Block::kBasic;
  std::vector<std::int64_t> blocks = {2, 2, 2, 2};  ///< per stage
  /// Of bottlenecks: groups of the 3x3 convolution and their channels in the first stage, 1 and 64
  /// in a plain ResNet (ResNeXt 32 and 4, wide ones 1 and 128).
  std::int64_t groups = 1, width_per_group = 64;
  std::int64_t classes = 1000;
  std::int64_t batch = 32;
  std::int64_t resolution = 224;  ///< of the square image, three colours
  /// Targets are probabilities of all classes [B, classes], as random data of benchmarks is;
  /// otherwise the number of the class.
  bool soft_targets = false;
  TrainingOptions training;
};

/// "resnet18", 34, 50, 101, 152, "resnext50_32x4d", "resnext101_32x8d", "wide_resnet50_2",
/// "wide_resnet101_2".
Result<ResnetConfig> resnet_preset(std::string_view name);

/// One training step. Errors: sizes that are not positive, another number of stages than four,
/// groups of basic blocks, a batch with one value per channel, 2^60 elements or more.
Result<ExecutionGraph> build_resnet(const ResnetConfig& config);

}  // namespace perfmodel
