#include <array>
#include <utility>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "resnet_layers.hpp"

namespace perfmodel {
namespace {

using Block = ResnetConfig::Block;

struct ResnetPreset {
  std::string_view name;
  Block block;
  std::array<std::int64_t, 4> blocks;
  std::int64_t groups = 1, width_per_group = 64;
};

constexpr std::array kResnetPresets = {
    ResnetPreset{"resnet18", Block::kBasic, {2, 2, 2, 2}},
    ResnetPreset{"resnet34", Block::kBasic, {3, 4, 6, 3}},
    ResnetPreset{"resnet50", Block::kBottleneck, {3, 4, 6, 3}},
    ResnetPreset{"resnet101", Block::kBottleneck, {3, 4, 23, 3}},
    ResnetPreset{"resnet152", Block::kBottleneck, {3, 8, 36, 3}},
    ResnetPreset{"resnext50_32x4d", Block::kBottleneck, {3, 4, 6, 3}, 32, 4},
    ResnetPreset{"resnext101_32x8d", Block::kBottleneck, {3, 4, 23, 3}, 32, 8},
    ResnetPreset{"wide_resnet50_2", Block::kBottleneck, {3, 4, 6, 3}, 1, 128},
    ResnetPreset{"wide_resnet101_2", Block::kBottleneck, {3, 4, 23, 3}, 1, 128},
};

// After stem, pooling and three stages, each of which halves the image and rounds up.
std::int64_t last_size(std::int64_t resolution) { return (resolution + 31) / 32; }

Result<void> check(const ResnetConfig& config) {
  if (config.blocks.size() != 4) {
    return fail(ErrorCode::kImpossible,
                "blocks: expected four stages, found " + std::to_string(config.blocks.size()));
  }
  for (std::int64_t count : config.blocks) {
    if (auto good = expect_at_least("blocks", 1, count); !good) return good;
  }
  if (config.block == Block::kBasic && (config.groups != 1 || config.width_per_group != 64)) {
    return fail(ErrorCode::kImpossible,
                "groups: expected 1 of width 64 (only bottlenecks have others), found " +
                    std::to_string(config.groups) + " of width " +
                    std::to_string(config.width_per_group));
  }
  const std::int64_t size = last_size(config.resolution);
  if (auto good = all_good({expect_at_least("batch", 1, config.batch),
                            expect_at_least("resolution", 1, config.resolution),
                            expect_at_least("classes", 1, config.classes),
                            expect_at_least("groups", 1, config.groups),
                            expect_at_least("width per group", 1, config.width_per_group)});
      !good) {
    return good;
  }
  if (config.batch * size == 1) {
    return fail(ErrorCode::kImpossible,
                "batch: expected more than one value per channel for batch norm, found one image "
                "of 1 x 1 after the last stage");
  }
  return all_good(
      {expect_countable("image", {config.batch, 64, config.resolution, config.resolution}),
       expect_countable("width",
                        {config.batch, 8 * config.groups, config.width_per_group, size, size}),
       expect_countable("scores", {config.batch, config.classes, 2048})});
}

}  // namespace

Result<ResnetConfig> resnet_preset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ResnetPreset& preset : kResnetPresets) {
    names.push_back(preset.name);
    if (preset.name != name) continue;
    ResnetConfig config;
    config.name = name;
    config.block = preset.block;
    config.blocks.assign(preset.blocks.begin(), preset.blocks.end());
    config.groups = preset.groups;
    config.width_per_group = preset.width_per_group;
    return config;
  }
  return unknown_preset("a ResNet preset", name, names);
}

Result<ExecutionGraph> build_resnet(const ResnetConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  TrainingStep step(config.training);
  ResnetTrunk trunk(step, config);
  const LinearLayer head =
      make_linear_layer(step, ResnetTrunk::channels(config).back(), config.classes);
  TensorRef image, target;
  TrainingStep::Parts parts;
  parts.inputs = [&] {
    image = step.input(DType::kFloat32, {config.batch, 3, config.resolution, config.resolution});
    target = config.soft_targets ? step.input(DType::kFloat32, {config.batch, config.classes})
                                 : step.input(DType::kInt64, {config.batch});
  };
  parts.forward = [&] {
    const TensorRef x = trunk.stages(image, 1).front();
    const TensorRef pooled = adaptive_avg_pool2d(step.tape(), x, {1, 1});
    return apply(step, head, flatten(step.tape(), pooled, 1));
  };
  parts.loss = [&](TensorRef scores) { return cross_entropy(step.tape(), scores, target); };
  return step.run(parts);
}

}  // namespace perfmodel
