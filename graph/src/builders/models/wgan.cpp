#include <fmt/format.h>

#include <bit>
#include <utility>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace {

constexpr double kSlope = 0.2;     // slope of leaky ReLU
constexpr std::int64_t kSeed = 4;  // height and width between noise and image

Result<void> check(const WganConfig& config) {
  const auto good = all_good(
      {expect_at_least("batch", 1, config.batch), expect_at_least("latent", 1, config.latent),
       expect_at_least("features", 1, config.features),
       expect_at_least("colours", 1, config.colours), expect_at_least("image", 16, config.image),
       expect_countable(
           "images", {config.batch, config.image, config.image, config.features, config.colours}),
       expect_countable("weights", {config.latent, config.features, config.image, 16})});
  if (!good) return good;
  if (!std::has_single_bit(static_cast<std::uint64_t>(config.image))) {
    return fail(ErrorCode::kImpossible,
                fmt::format("image: expected a power of two, found {}", config.image));
  }
  if (!(config.clip > 0)) {
    return fail(ErrorCode::kImpossible,
                fmt::format("clip: expected a positive number, found {}", config.clip));
  }
  if (!config.training.pytorch.on_gpu()) {
    return fail(ErrorCode::kImpossible,
                "device: expected gpu for transposed convolutions, found "
                "cpu");
  }
  return {};
}

// Halves or doubles the image; without `resized`, turns 4 x 4 into one value or back.
Conv2d window(bool resized, bool transposed) {
  Conv2d conv;
  if (resized) {
    conv.stride = {2, 2};
    conv.padding = {1, 1};
  }
  conv.transposed = transposed;
  return conv;
}

class WganBuilder : public ModelBuilder<WganConfig> {
 public:
  explicit WganBuilder(const WganConfig& config) : ModelBuilder(config) {
    const bool critic_learns = config.step == WganConfig::Step::kCritic;
    step_.freeze(critic_learns);
    make_generator();
    step_.freeze(!critic_learns);
    make_critic();
    step_.freeze(false);
  }

  ExecutionGraph build() {
    TrainingStep::Parts parts;
    const bool critic_learns = config_.step == WganConfig::Step::kCritic;
    TensorRef real, noise;
    parts.inputs = [&] {
      if (critic_learns) {
        real = step_.input(DType::kFloat32,
                           {config_.batch, config_.colours, config_.image, config_.image});
      }
      noise = step_.input(DType::kFloat32, {config_.batch, config_.latent, 1, 1});
    };
    parts.forward = [&] {
      if (!critic_learns) return neg(tape_, critic(generator(noise)));
      const TensorRef of_real = critic(real);
      return sub(tape_, critic(generator(noise)), of_real);
    };
    if (critic_learns) parts.behind_optimizer = [&] { clip_weights(); };
    return step_.run(parts);
  }

 private:
  void make_generator() {
    std::int64_t channels = config_.features * config_.image / (2 * kSeed);
    std::int64_t in = config_.latent;
    for (; channels >= config_.features; channels /= 2) {
      const bool resized = !generator_.empty();
      generator_.push_back(make_conv_norm(step_, in, channels, {4, 4}, window(resized, true)));
      in = channels;
    }
    to_image_ = make_conv(step_, in, config_.colours, {4, 4}, window(true, true));
  }

  void make_critic() {
    from_image_ = make_conv(step_, config_.colours, config_.features, {4, 4}, window(true, false));
    std::int64_t in = config_.features;
    for (std::int64_t size = config_.image / 2; size > kSeed; size /= 2) {
      critic_.push_back(make_conv_norm(step_, in, 2 * in, {4, 4}, window(true, false)));
      in *= 2;
    }
    verdict_ = make_conv(step_, in, 1, {4, 4}, window(false, false));
  }

  TensorRef generator(TensorRef x) {
    for (const ConvNorm& layer : generator_) x = relu_in_place(tape_, apply(step_, layer, x));
    return tanh(tape_, apply(step_, to_image_, x));
  }

  // Mean of the critic's outputs over the images.
  TensorRef critic(TensorRef x) {
    x = leaky_relu_in_place(tape_, apply(step_, from_image_, x), kSlope);
    for (const ConvNorm& layer : critic_) {
      x = leaky_relu_in_place(tape_, apply(step_, layer, x), kSlope);
    }
    return mean(tape_, apply(step_, verdict_, x));
  }

  void clip_weights() {
    GraphBuilder& graph = step_.graph();
    for (TensorRef weight : step_.parameters()) {
      graph.leaf_op("aten::clamp_", {weight, -config_.clip, config_.clip}, {weight},
                    tape_.sequence());
    }
  }

  std::vector<ConvNorm> generator_, critic_;
  ConvLayer to_image_, from_image_, verdict_;
};

}  // namespace

Result<WganConfig> wgan_preset(std::string_view name) {
  if (name != "wgan" && name != "wgan32") {
    return unknown_preset("a WGAN preset", name, {"wgan", "wgan32"});
  }
  WganConfig config;
  config.name = name;
  if (name == "wgan32") config.image = 32;
  return config;
}

Result<ExecutionGraph> build_wgan(const WganConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return WganBuilder(config).build();
}

}  // namespace perfmodel
