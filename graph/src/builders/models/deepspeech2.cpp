#include <fmt/format.h>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "recurrent_parts.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace {

constexpr int kClip = 20;

Conv2d geometry(const Deepspeech2Config::Convolution& convolution) {
  Conv2d conv;
  conv.stride = {convolution.frequency_stride, convolution.time_stride};
  conv.padding = {convolution.frequency_padding, convolution.time_padding};
  return conv;
}

// {frequencies, steps} after the convolutions.
Shape convolved(const Deepspeech2Config& config) {
  Shape size = {config.frequencies, config.frames};
  for (const auto& convolution : config.convolutions) {
    size = convolved_size(size, {convolution.frequency_kernel, convolution.time_kernel},
                          geometry(convolution));
  }
  return size;
}

Result<void> check_convolutions(const Deepspeech2Config& config) {
  Shape size = {config.frequencies, config.frames};
  for (std::size_t i = 0; i < config.convolutions.size(); ++i) {
    const auto& c = config.convolutions[i];
    const std::string name = fmt::format("convolution {}: ", i);
    const auto good = all_good({expect_at_least(name + "channels", 1, c.channels),
                                expect_at_least(name + "kernel", 1, c.frequency_kernel),
                                expect_at_least(name + "kernel", 1, c.time_kernel),
                                expect_at_least(name + "stride", 1, c.frequency_stride),
                                expect_at_least(name + "stride", 1, c.time_stride),
                                expect_at_least(name + "padding", 0, c.frequency_padding),
                                expect_at_least(name + "padding", 0, c.time_padding)});
    if (!good) return good;
    const Shape padded = {size[0] + 2 * c.frequency_padding, size[1] + 2 * c.time_padding};
    if (padded[0] < c.frequency_kernel || padded[1] < c.time_kernel) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("{}expected a kernel of at most {} x {} (its padded input), found "
                              "{} x {}",
                              name, padded[0], padded[1], c.frequency_kernel, c.time_kernel));
    }
    size = convolved_size(size, {c.frequency_kernel, c.time_kernel}, geometry(c));
  }
  return {};
}

Result<void> check(const Deepspeech2Config& config) {
  if (config.convolutions.empty()) {
    return fail(ErrorCode::kImpossible, "convolutions: expected at least one, found none");
  }
  const auto sizes = all_good(
      {expect_at_least("frequencies", 1, config.frequencies),
       expect_layers("layers", config.layers), expect_at_least("hidden", 1, config.hidden),
       expect_at_least("characters", 2, config.characters),
       expect_at_least("batch", 1, config.batch), expect_at_least("frames", 1, config.frames),
       expect_at_least("target steps", 1, config.target_steps)});
  if (!sizes) return sizes;
  const auto countable =
      expect_countable("input", {config.batch, config.frequencies, config.frames});
  if (!countable) return countable;
  if (auto good = check_convolutions(config); !good) return good;
  const std::int64_t steps = output_steps(config);
  if (steps < config.target_steps) {
    return fail(ErrorCode::kImpossible,
                fmt::format("target steps: expected at most {} (the steps after the "
                            "convolutions), found {}",
                            steps, config.target_steps));
  }
  return all_good({expect_countable("gates", {steps, config.batch, 2, 4 * config.hidden}),
                   expect_countable("convolutions", {steps, config.batch, recurrent_input(config)}),
                   expect_countable("weights", {2 * config.layers, 4 * config.hidden,
                                                recurrent_input(config) + 2 * config.hidden})});
}

class Deepspeech2Builder : public ModelBuilder<Deepspeech2Config> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    make_parameters();
    return step_.run([this] {
      const TensorRef sound =
          step_.input(DType::kFloat32, {config_.batch, 1, config_.frequencies, config_.frames});
      const TensorRef targets = step_.input(DType::kInt64, {config_.batch, config_.target_steps});
      const TensorRef scores = model(sound);
      const TensorRef input_lengths = host_lengths(), target_lengths = host_lengths();
      return ctc_loss(tape_, log_softmax(tape_, scores, 2), targets, input_lengths, target_lengths);
    });
  }

 private:
  struct Layer {
    BatchNorm norm;  // before all layers except the first
    RecurrentLayers both;
  };

  TensorRef host_lengths() {
    return graph_.new_tensor(DType::kInt64, GraphBuilder::cpu(), {config_.batch});
  }

  void make_parameters() {
    std::int64_t channels = 1;
    for (const auto& c : config_.convolutions) {
      const ConvLayer conv = make_conv(step_, channels, c.channels,
                                       {c.frequency_kernel, c.time_kernel}, geometry(c), true);
      convolutions_.push_back({conv, make_batch_norm(step_, c.channels)});
      channels = c.channels;
    }
    std::int64_t width = recurrent_input(config_);
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      Layer layer;
      if (i > 0) layer.norm = make_batch_norm(step_, width);
      RecurrentLayers both;
      both.cell = config_.cell;
      both.input = width;
      both.hidden = config_.hidden;
      both.bidirectional = true;
      layer.both = make_recurrent_layers(step_, both);
      layers_.push_back(std::move(layer));
      width = config_.hidden;
    }
    last_norm_ = make_batch_norm(step_, config_.hidden);
    output_ = step_.parameter({config_.characters, config_.hidden});
  }

  // [T, B, W] -> [T B, W] and back, with batch norm in between ("sequence-wise").
  TensorRef norm_positions(TensorRef x, const BatchNorm& norm) {
    const Shape shape = graph_.shape(x);
    const TensorRef flat = view(tape_, x, {shape[0] * shape[1], -1});
    return view(tape_, batch_norm(tape_, flat, norm), {shape[0], shape[1], -1});
  }

  TensorRef both_directions(TensorRef x, const Layer& layer) {
    const TensorRef y = recurrent_layers(tape_, layer.both, x).sequence;
    const Shape shape = graph_.shape(y);
    const TensorRef split = view(tape_, y, {shape[0], shape[1], 2, -1});
    return view(tape_, sum(tape_, split, {2}, false), {shape[0], shape[1], -1});
  }

  TensorRef model(TensorRef x) {
    for (const ConvNorm& layer : convolutions_) {
      x = apply(step_, layer, x);
      hardtanh_in_place(tape_, x, 0, kClip);
    }
    const Shape shape = graph_.shape(x);
    x = view(tape_, x, {shape[0], shape[1] * shape[2], shape[3]});
    x = contiguous(tape_, transpose(tape_, transpose(tape_, x, 1, 2), 0, 1));
    for (const Layer& layer : layers_) {
      if (layer.norm.weight.exists()) x = norm_positions(x, layer.norm);
      x = both_directions(x, layer);
    }
    const Shape sequence = graph_.shape(x);
    const TensorRef flat = view(tape_, x, {sequence[0] * sequence[1], -1});
    const TensorRef scores = linear(tape_, batch_norm(tape_, flat, last_norm_), output_);
    return view(tape_, scores, {sequence[0], sequence[1], -1});
  }

  std::vector<ConvNorm> convolutions_;
  std::vector<Layer> layers_;
  BatchNorm last_norm_;
  TensorRef output_;
};

}  // namespace

Result<Deepspeech2Config> deepspeech2_preset(std::string_view name) {
  Deepspeech2Config config;
  if (name == "mlperf") {
    for (auto& convolution : config.convolutions) {
      convolution.frequency_padding = convolution.time_padding = 0;
    }
  } else if (name == "librispeech") {
    config.cell = RecurrentCell::kLstm;
    config.hidden = 1024;
  } else if (name == "tbd") {
    config.hidden = 1760;
  } else {
    return unknown_preset("a Deep Speech 2 preset", name, {"mlperf", "librispeech", "tbd"});
  }
  config.name = fmt::format("deepspeech2-{}", name);
  return config;
}

std::int64_t output_steps(const Deepspeech2Config& config) { return convolved(config)[1]; }

std::int64_t recurrent_input(const Deepspeech2Config& config) {
  return config.convolutions.back().channels * convolved(config)[0];
}

std::int64_t parameter_count(const Deepspeech2Config& config) {
  std::int64_t count = 0, channels = 1;
  for (const auto& c : config.convolutions) {
    // Filters, biases, scale and shift.
    count += c.channels * (channels * c.frequency_kernel * c.time_kernel + 3);
    channels = c.channels;
  }
  const std::int64_t h = config.hidden;
  count += 2 * recurrent_parameters(config.cell, recurrent_input(config), h);
  count += (config.layers - 1) * (2 * recurrent_parameters(config.cell, h, h) + 2 * h);
  return count + 2 * h + config.characters * h;
}

Result<ExecutionGraph> build_deepspeech2(const Deepspeech2Config& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return Deepspeech2Builder(config).build();
}

}  // namespace perfmodel
