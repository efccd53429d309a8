#pragma once

#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "vision_layers.hpp"

namespace perfmodel {

/// The layers of a ResNet before its head: also the backbone of detectors.
class ResnetTrunk {
 public:
  /// Makes the parameters.
  ResnetTrunk(TrainingStep& step, const ResnetConfig& config);

  /// [B, C, H, W] of the last `count` stages, image [B, 3, H, W].
  std::vector<TensorRef> stages(TensorRef image, std::size_t count);

  /// Channels after each stage.
  static std::vector<std::int64_t> channels(const ResnetConfig& config);

 private:
  struct Block {
    std::vector<ConvNorm> layers;
    std::vector<ConvNorm> downsample;  // one or none
  };

  Block make_block(const ResnetConfig& config, std::int64_t in, std::int64_t width,
                   std::int64_t stride);
  TensorRef apply_block(const Block& block, TensorRef x);

  TrainingStep& step_;
  ConvNorm stem_;
  std::vector<std::vector<Block>> stages_;
};

}  // namespace perfmodel
