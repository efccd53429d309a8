#include "resnet_layers.hpp"

#include "builders/emit/ops.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kFirstWidth = 64;

std::int64_t expansion(const ResnetConfig& config) {
  return config.block == ResnetConfig::Block::kBottleneck ? 4 : 1;
}

Conv2d padded(std::int64_t stride, std::int64_t padding, std::int64_t groups = 1) {
  return {.stride = {stride, stride}, .padding = {padding, padding}, .groups = groups};
}

}  // namespace

ResnetTrunk::ResnetTrunk(TrainingStep& step, const ResnetConfig& config)
    : step_(step), stem_(make_conv_norm(step, 3, kFirstWidth, {7, 7}, padded(2, 3))) {
  std::int64_t in = kFirstWidth, width = kFirstWidth;
  for (std::int64_t count : config.blocks) {
    std::vector<Block>& stage = stages_.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t stride = i == 0 && width != kFirstWidth ? 2 : 1;
      stage.push_back(make_block(config, in, width, stride));
      in = width * expansion(config);
    }
    width *= 2;
  }
}

std::vector<std::int64_t> ResnetTrunk::channels(const ResnetConfig& config) {
  std::vector<std::int64_t> channels;
  for (std::size_t i = 0; i < config.blocks.size(); ++i) {
    channels.push_back((kFirstWidth << i) * expansion(config));
  }
  return channels;
}

ResnetTrunk::Block ResnetTrunk::make_block(const ResnetConfig& config, std::int64_t in,
                                           std::int64_t width, std::int64_t stride) {
  Block block;
  const std::int64_t out = width * expansion(config);
  if (config.block == ResnetConfig::Block::kBottleneck) {
    const std::int64_t inner = width * config.width_per_group / kFirstWidth * config.groups;
    block.layers = {make_conv_norm(step_, in, inner, {1, 1}, padded(1, 0)),
                    make_conv_norm(step_, inner, inner, {3, 3}, padded(stride, 1, config.groups)),
                    make_conv_norm(step_, inner, out, {1, 1}, padded(1, 0))};
  } else {
    block.layers = {make_conv_norm(step_, in, width, {3, 3}, padded(stride, 1)),
                    make_conv_norm(step_, width, width, {3, 3}, padded(1, 1))};
  }
  if (stride != 1 || in != out) {
    block.downsample = {make_conv_norm(step_, in, out, {1, 1}, padded(stride, 0))};
  }
  return block;
}

TensorRef ResnetTrunk::apply_block(const Block& block, TensorRef x) {
  TensorRef y = x, identity = x;
  for (std::size_t i = 0; i < block.layers.size(); ++i) {
    y = apply(step_, block.layers[i], y);
    if (i + 1 < block.layers.size()) y = relu_in_place(step_.tape(), y);
  }
  for (const ConvNorm& layer : block.downsample) identity = apply(step_, layer, x);
  add_in_place(step_.tape(), y, identity);
  return relu_in_place(step_.tape(), y);
}

std::vector<TensorRef> ResnetTrunk::stages(TensorRef image, std::size_t count) {
  TensorRef x = relu_in_place(step_.tape(), apply(step_, stem_, image));
  x = max_pool2d(step_.tape(), x, {.kernel = 3, .stride = 2, .padding = 1});
  std::vector<TensorRef> made;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    for (const Block& block : stages_[i]) x = apply_block(block, x);
    if (i + count >= stages_.size()) made.push_back(x);
  }
  return made;
}

}  // namespace perfmodel
