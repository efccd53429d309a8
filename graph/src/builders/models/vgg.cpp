#include <array>
#include <utility>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace {

using Layer = VggConfig::Layer;

struct VggPreset {
  std::string_view name;
  std::array<int, 5> convolutions;  // per stage
};

constexpr std::array kVggPresets = {
    VggPreset{"vgg11", {1, 1, 2, 2, 2}}, VggPreset{"vgg13", {2, 2, 2, 2, 2}},
    VggPreset{"vgg16", {2, 2, 3, 3, 3}}, VggPreset{"vgg19", {2, 2, 4, 4, 4}}};

std::vector<Layer> vgg_features(const std::array<int, 5>& convolutions) {
  std::vector<Layer> features;
  std::int64_t channels = 64;
  for (int count : convolutions) {
    features.insert(features.end(), static_cast<std::size_t>(count), {.channels = channels});
    features.push_back({.channels = 0, .kernel = 2, .stride = 2, .padding = 0});
    channels = std::min<std::int64_t>(2 * channels, 512);
  }
  return features;
}

VggConfig alexnet() {
  constexpr Layer kPool = {.channels = 0, .kernel = 3, .stride = 2, .padding = 0};
  VggConfig config;
  config.name = "alexnet";
  config.features = {{64, 11, 4, 2}, kPool,          {192, 5, 1, 2}, kPool,
                     {384, 3, 1, 1}, {256, 3, 1, 1}, {256, 3, 1, 1}, kPool};
  config.pooled = 6;
  config.dropout_in_front = true;
  return config;
}

Result<void> check_features(const VggConfig& config) {
  if (config.features.empty()) {
    return fail(ErrorCode::kImpossible, "features: expected at least one layer, found none");
  }
  std::int64_t size = config.resolution;
  for (const Layer& layer : config.features) {
    auto good = all_good(
        {expect_at_least("channels", 0, layer.channels), expect_at_least("kernel", 1, layer.kernel),
         expect_at_least("stride", 1, layer.stride), expect_at_least("padding", 0, layer.padding)});
    if (!good) return good;
    if (size + 2 * layer.padding < layer.kernel) {
      return fail(ErrorCode::kImpossible,
                  "resolution: expected an image of which every layer leaves something, found " +
                      std::to_string(config.resolution));
    }
    size = (size + 2 * layer.padding - layer.kernel) / layer.stride + 1;
    good = expect_countable("activations", {config.batch, layer.channels + 1, size, size});
    if (!good) return good;
  }
  return {};
}

Result<void> check(const VggConfig& config) {
  const auto good = all_good(
      {expect_at_least("batch", 1, config.batch),
       expect_at_least("resolution", 1, config.resolution),
       expect_at_least("classes", 1, config.classes), expect_at_least("hidden", 1, config.hidden),
       expect_at_least("pooled", 1, config.pooled), expect_probability("dropout", config.dropout),
       expect_countable("image", {config.batch, 3, config.resolution, config.resolution}),
       expect_countable("hidden", {config.batch, config.hidden, config.pooled, config.pooled}),
       expect_countable("scores", {config.batch, config.classes, config.hidden})});
  return good ? check_features(config) : good;
}

class VggBuilder : public ModelBuilder<VggConfig> {
 public:
  explicit VggBuilder(const VggConfig& config) : ModelBuilder(config) {
    std::int64_t in = 3;
    for (const Layer& layer : config.features) {
      if (layer.channels == 0) continue;
      const Conv2d conv = {.stride = {layer.stride, layer.stride},
                           .padding = {layer.padding, layer.padding}};
      convolutions_.push_back(
          make_conv(step_, in, layer.channels, {layer.kernel, layer.kernel}, conv, true));
      if (config.batch_norm) norms_.push_back(make_batch_norm(step_, layer.channels));
      in = layer.channels;
    }
    in *= config.pooled * config.pooled;
    for (std::int64_t out : {config.hidden, config.hidden, config.classes}) {
      linear_.push_back(make_linear_layer(step_, std::exchange(in, out), out));
    }
  }

  ExecutionGraph build() {
    TensorRef image, target;
    TrainingStep::Parts parts;
    parts.inputs = [&] {
      const std::int64_t size = config_.resolution;
      image = step_.input(DType::kFloat32, {config_.batch, 3, size, size});
      target = step_.input(DType::kInt64, {config_.batch});
    };
    parts.forward = [&] { return classify(features(image)); };
    parts.loss = [&](TensorRef scores) { return cross_entropy(tape_, scores, target); };
    return step_.run(parts);
  }

 private:
  TensorRef features(TensorRef x) {
    std::size_t next = 0;
    for (const Layer& layer : config_.features) {
      if (layer.channels == 0) {
        x = max_pool2d(tape_, x, {layer.kernel, layer.stride, layer.padding});
        continue;
      }
      x = apply(step_, convolutions_[next], x);
      if (config_.batch_norm) x = batch_norm(tape_, x, norms_[next]);
      x = relu_in_place(tape_, x);
      ++next;
    }
    return adaptive_avg_pool2d(tape_, x, {config_.pooled, config_.pooled});
  }

  TensorRef classify(TensorRef x) {
    x = flatten(tape_, x, 1);
    for (std::size_t i = 0; i < linear_.size(); ++i) {
      const bool last = i + 1 == linear_.size();
      if (config_.dropout_in_front && !last) x = dropout(tape_, x, config_.dropout);
      x = apply(step_, linear_[i], x);
      if (!last) x = relu_in_place(tape_, x);
      if (!config_.dropout_in_front && !last) x = dropout(tape_, x, config_.dropout);
    }
    return x;
  }

  std::vector<ConvLayer> convolutions_;
  std::vector<BatchNorm> norms_;
  std::vector<LinearLayer> linear_;
};

}  // namespace

Result<VggConfig> vgg_preset(std::string_view name) {
  if (name == "alexnet") return alexnet();
  for (const VggPreset& preset : kVggPresets) {
    for (bool batch_norm : {false, true}) {
      if (std::string(preset.name) + (batch_norm ? "_bn" : "") != name) continue;
      VggConfig config;
      config.name = name;
      config.features = vgg_features(preset.convolutions);
      config.batch_norm = batch_norm;
      return config;
    }
  }
  return unknown_preset("a VGG preset", name,
                        {"vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn",
                         "vgg19_bn", "alexnet"});
}

Result<ExecutionGraph> build_vgg(const VggConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return VggBuilder(config).build();
}

}  // namespace perfmodel
