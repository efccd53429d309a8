#include <fmt/format.h>

#include <vector>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "recurrent_parts.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace {

constexpr double kValueWeight = 0.5, kEntropyWeight = 0.01, kBrightest = 255.0;
constexpr std::int64_t kFirstKernel = 8, kFirstStride = 4, kSecondKernel = 4, kSecondStride = 2;

std::int64_t left_of(std::int64_t size, std::int64_t kernel, std::int64_t stride) {
  return size < kernel ? 0 : (size - kernel) / stride + 1;
}

// Height and width after both convolutions.
std::int64_t map_size(const A3cConfig& config) {
  return left_of(left_of(config.resolution, kFirstKernel, kFirstStride), kSecondKernel,
                 kSecondStride);
}

Result<void> check(const A3cConfig& config) {
  if (config.channels.size() != 2) {
    return bad_config(
        fmt::format("channels: expected two convolutions, found {}", config.channels.size()));
  }
  const auto sizes = all_good({expect_at_least("batch", 1, config.batch),
                               expect_at_least("rollout", 1, config.rollout),
                               expect_at_least("frames", 1, config.frames),
                               expect_at_least("resolution", 1, config.resolution),
                               expect_at_least("actions", 1, config.actions),
                               expect_at_least("channels", 1, config.channels[0]),
                               expect_at_least("channels", 1, config.channels[1]),
                               expect_at_least("hidden", 1, config.hidden)});
  if (!sizes) return sizes;
  if (map_size(config) < 1) {
    return bad_config(fmt::format("resolution: expected frames of at least 20 x 20, found {}",
                                  config.resolution));
  }
  return all_good(
      {expect_countable("frames", {config.batch, config.rollout, config.frames, config.resolution,
                                   config.resolution}),
       expect_countable("maps", {config.batch, config.rollout, config.channels[0],
                                 config.resolution, config.resolution}),
       expect_countable("maps", {config.batch, config.rollout, config.channels[1],
                                 config.resolution, config.resolution}),
       expect_countable("filters", {config.channels[0], config.channels[1], 16}),
       expect_countable("weights",
                        {config.channels[1], map_size(config), map_size(config), config.hidden}),
       expect_countable("cell", {8, config.hidden, config.hidden}),
       expect_countable("policy", {config.batch, config.rollout, config.hidden, config.actions})});
}

Conv2d with_stride(std::int64_t stride) { return {.stride = {stride, stride}}; }

class A3cBuilder : public ModelBuilder<A3cConfig> {
 public:
  explicit A3cBuilder(const A3cConfig& config) : ModelBuilder(config) {
    first_ = make_conv(step_, config.frames, config.channels[0], {kFirstKernel, kFirstKernel},
                       with_stride(kFirstStride), true);
    second_ = make_conv(step_, config.channels[0], config.channels[1],
                        {kSecondKernel, kSecondKernel}, with_stride(kSecondStride), true);
    const std::int64_t features = config.channels[1] * map_size(config) * map_size(config);
    wide_ = make_linear_layer(step_, features, config.hidden);
    if (config.lstm) {
      cell_ = make_cell(step_, RecurrentCell::kLstm, config.hidden, config.hidden);
    }
    policy_ = make_linear_layer(step_, config.hidden, config.actions);
    value_ = make_linear_layer(step_, config.hidden, 1);
  }

  ExecutionGraph build() {
    TensorRef frames;
    TrainingStep::Parts parts;
    parts.inputs = [&] { frames = act(); };
    parts.forward = [&] { return loss(frames); };
    return step_.run(parts);
  }

 private:
  // On the recording tape, or on the one for torch.no_grad().
  TensorRef apply(AutogradTape& tape, const LinearLayer& layer, TensorRef x) {
    return linear(tape, x, layer.weight, layer.bias);
  }
  TensorRef apply(AutogradTape& tape, const ConvLayer& layer, TensorRef x) {
    return relu(tape, conv2d(tape, x, layer.weight, layer.bias, layer.conv));
  }

  // Frames [N, F, S, S] -> [N, H].
  TensorRef see(AutogradTape& tape, TensorRef x) {
    x = apply(tape, second_, apply(tape, first_, x));
    return relu(tape, apply(tape, wide_, flatten(tape, x, 1)));
  }

  CellState start_state() {
    return zero_state(graph_, RecurrentCell::kLstm, {config_.batch, config_.hidden});
  }

  TensorRef new_frames() {
    const Shape shape = {config_.batch, config_.frames, config_.resolution, config_.resolution};
    const TensorRef bytes = step_.input(DType::kUInt8, shape);
    return div(no_grad_, to_dtype(graph_, bytes, DType::kFloat32), kBrightest);
  }

  // The agent's present view, as input for its heads.
  TensorRef look(TensorRef frames, CellState& state) {
    const TensorRef seen = see(no_grad_, frames);
    if (!config_.lstm) return seen;
    state = library_cell(no_grad_, RecurrentCell::kLstm, cell_, seen, state);
    return state.hidden;
  }

  // The host waits for the numbers.
  void to_host(TensorRef x) {
    if (!config_.training.pytorch.on_gpu()) return;
    to(graph_, x, graph_.new_tensor(graph_.dtype(x), GraphBuilder::cpu(), graph_.shape(x)),
       {.tensor = {.dtype = false, .layout = false}});
  }

  // All frames that were seen: [rollout * B, F, S, S].
  TensorRef act() {
    std::vector<TensorRef> seen;
    CellState state;
    if (config_.lstm) state = start_state();
    for (std::int64_t i = 0; i < config_.rollout; ++i) {
      seen.push_back(new_frames());
      to_host(softmax(no_grad_, apply(no_grad_, policy_, look(seen.back(), state)), -1));
    }
    to_host(apply(no_grad_, value_, look(new_frames(), state)));
    actions_ = step_.input(DType::kInt64, {config_.rollout * config_.batch});
    returns_ = step_.input(DType::kFloat32, {config_.rollout * config_.batch});
    return cat(graph_, seen, 0);
  }

  // [rollout * B, H], step by step through the cell if there is one.
  TensorRef features(TensorRef frames) {
    const TensorRef seen = see(tape_, frames);
    if (!config_.lstm) return seen;
    CellState state = start_state();
    std::vector<TensorRef> outputs;
    for (TensorRef step : chunk(tape_, seen, static_cast<int>(config_.rollout), 0)) {
      state = library_cell(tape_, RecurrentCell::kLstm, cell_, step, state);
      outputs.push_back(state.hidden);
    }
    return cat(tape_, outputs, 0);
  }

  TensorRef loss(TensorRef frames) {
    const TensorRef x = features(frames);
    const TensorRef logits = apply(tape_, policy_, x);
    const TensorRef values = squeeze(tape_, apply(tape_, value_, x), 1);
    const TensorRef log_chances = log_softmax(tape_, logits, -1);
    const TensorRef chances = softmax(tape_, logits, -1);
    const TensorRef entropy =
        neg(tape_, mean(tape_, sum(tape_, mul(tape_, chances, log_chances), {-1}, false)));
    const TensorRef taken =
        squeeze(tape_, gather(tape_, log_chances, 1, unsqueeze(tape_, actions_, 1)), 1);
    const TensorRef advantage = sub(tape_, returns_, values);
    const TensorRef given = detach(graph_, advantage, tape_.sequence());
    const TensorRef policy_loss = neg(tape_, mean(tape_, mul(tape_, given, taken)));
    const TensorRef value_loss = mean(tape_, pow(tape_, advantage, 2));
    const TensorRef both = add(tape_, policy_loss, mul(tape_, value_loss, kValueWeight));
    return sub(tape_, both, mul(tape_, entropy, kEntropyWeight));
  }

  AutogradTape no_grad_{graph_, -1};
  ConvLayer first_, second_;
  LinearLayer wide_, policy_, value_;
  CellWeights cell_;
  TensorRef actions_, returns_;
};

}  // namespace

Result<A3cConfig> a3c_preset(std::string_view name) {
  if (name != "a3c" && name != "a3c-lstm") {
    return unknown_preset("an A3C preset", name, {"a3c", "a3c-lstm"});
  }
  A3cConfig config;
  config.name = name;
  config.lstm = name == "a3c-lstm";
  return config;
}

std::int64_t parameter_count(const A3cConfig& config) {
  const std::int64_t c1 = config.channels[0], c2 = config.channels[1], h = config.hidden;
  const std::int64_t map = map_size(config);
  const std::int64_t filters = (kFirstKernel * kFirstKernel * config.frames + 1) * c1 +
                               (kSecondKernel * kSecondKernel * c1 + 1) * c2;
  const std::int64_t cell =
      config.lstm ? recurrent_parameters(RecurrentCell::kLstm, h, h) : std::int64_t{0};
  return filters + (c2 * map * map + 1) * h + cell + (h + 1) * (config.actions + 1);
}

Result<ExecutionGraph> build_a3c(const A3cConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return A3cBuilder(config).build();
}

}  // namespace perfmodel
