#include "perfmodel/graph/build_transformers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "builders/emit/ops.hpp"
#include "expert_layers.hpp"
#include "transformer_parts.hpp"

namespace perfmodel {
namespace {

constexpr double kGptEps = 1e-5;

struct GptLayer {
  NormWeights first, second;
  LinearWeights qkv, attention_out, wide, narrow;
  ExpertLayer experts;  // instead of wide and narrow
};

class GptBuilder : public ModelBuilder<GptConfig> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    make_parameters();
    return run_on_tokens(step_, config_, config_.sequence, [&](TensorRef tokens, TensorRef labels) {
      const TensorRef loss = token_loss(tape_, scores(tokens), labels, true);
      return with_balance_losses(tape_, config_.experts, loss, balance_losses_);
    });
  }

 private:
  // Weights are transposed compared with nn.Linear.
  LinearWeights make_conv1d(std::int64_t in, std::int64_t out) {
    const TensorRef weight = step_.parameter({in, out});
    return {weight, config_.biases ? step_.parameter({out}) : TensorRef{}};
  }

  void make_parameters() {
    const std::int64_t width = config_.hidden;
    words_ = step_.parameter({config_.vocabulary, width});
    positions_ = step_.parameter({config_.positions, width});
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      GptLayer& layer = layers_.emplace_back();
      layer.first = make_layer_norm(step_, width);
      layer.qkv = make_conv1d(width, 3 * width);
      layer.attention_out = make_conv1d(width, width);
      layer.second = make_layer_norm(step_, width);
      if (config_.experts.experts > 0) {
        layer.experts =
            make_expert_layer(step_, config_.experts, width, config_.feed_forward, false);
      } else {
        layer.wide = make_conv1d(width, config_.feed_forward);
        layer.narrow = make_conv1d(config_.feed_forward, width);
      }
      // A bool for every pair of positions, kept with the layer.
      masks_.push_back(
          graph_.new_tensor(DType::kBool, {1, 1, config_.positions, config_.positions}));
    }
    norm_ = make_layer_norm(step_, width);
    head_ = config_.tied ? words_ : step_.parameter({config_.vocabulary, width});
  }

  TensorRef conv1d(TensorRef x, const LinearWeights& weights) {
    Shape shape = graph_.shape(x);
    const TensorRef rows = view(tape_, x, {-1, shape.back()});
    shape.back() = graph_.shape(weights.weight)[1];
    const TensorRef made = weights.bias.exists() ? addmm(tape_, weights.bias, rows, weights.weight)
                                                 : mm(tape_, rows, weights.weight);
    return view(tape_, made, shape);
  }

  TensorRef scores(TensorRef tokens) {
    const TensorRef ids = view(tape_, tokens, {-1, config_.sequence});
    const TensorRef line = arange(graph_, config_.sequence);
    const TensorRef places = view(tape_, unsqueeze(tape_, line, 0), {-1, config_.sequence});
    const TensorRef words = embedding_lookup(tape_, words_, ids);
    const TensorRef positions = embedding_lookup(tape_, positions_, places);
    TensorRef x = dropout(tape_, add(tape_, words, positions), config_.dropout);
    for (std::size_t i = 0; i < layers_.size(); ++i) x = apply(layers_[i], masks_[i], x);
    x = layer_norm(tape_, x, norm_, kGptEps);
    x = view(tape_, x, {-1, config_.sequence, config_.hidden});
    return linear(tape_, x, head_);
  }

  TensorRef apply(const GptLayer& layer, TensorRef mask, TensorRef x) {
    const TensorRef attended = conv1d(
        attention(layer, mask, layer_norm(tape_, x, layer.first, kGptEps)), layer.attention_out);
    x = add(tape_, dropout(tape_, attended, config_.dropout), x);
    const TensorRef normed = layer_norm(tape_, x, layer.second, kGptEps);
    const TensorRef made = config_.experts.experts > 0 ? through_experts(layer.experts, normed)
                                                       : feed_forward(layer, normed);
    return add(tape_, x, dropout(tape_, made, config_.dropout));
  }

  TensorRef feed_forward(const GptLayer& layer, TensorRef x) {
    return conv1d(activation(conv1d(x, layer.wide)), layer.narrow);
  }

  TensorRef through_experts(const ExpertLayer& experts, TensorRef x) {
    const ExpertsResult made = apply_experts(tape_, config_.experts, experts, x,
                                             [&](TensorRef wide) { return activation(wide); });
    if (made.balance_loss.exists()) balance_losses_.push_back(made.balance_loss);
    return made.out;
  }

  TensorRef activation(TensorRef x) {
    switch (config_.activation) {
      case GptConfig::Activation::kGeluNew:
        return gelu_new(tape_, x);
      case GptConfig::Activation::kGeluTanh:
        return gelu_tanh(tape_, x);
      case GptConfig::Activation::kGelu:
        return gelu(tape_, x);
      case GptConfig::Activation::kRelu:
        return relu(tape_, x);
      case GptConfig::Activation::kSilu:
        return silu(tape_, x);
    }
    return x;
  }

  TensorRef attention(const GptLayer& layer, TensorRef mask, TensorRef x) {
    std::vector<TensorRef> qkv = split(tape_, conv1d(x, layer.qkv), config_.hidden, 2);
    for (TensorRef& part : qkv) part = split_heads(tape_, part, config_.heads, false);
    if (config_.attention != TransformerConfig::Attention::kEager) {
      return join_heads(tape_,
                        fused_attention(tape_, config_.attention, qkv[0], qkv[1], qkv[2],
                                        config_.dropout, true, {}),
                        true);
    }
    const double root = std::sqrt(static_cast<double>(config_.hidden / config_.heads));
    TensorRef scores = matmul(tape_, qkv[0], transpose(tape_, qkv[1], -1, -2));
    if (config_.fused_softmax) {
      const TensorRef kept = dropout(tape_, masked_softmax(tape_, scores, mask), config_.dropout);
      return join_heads(tape_, matmul(tape_, kept, qkv[2]), false);
    }
    scores = div(tape_, scores, full(graph_, {}, root));
    mask = index_all(tape_, index_all(tape_, mask, 0), 1);
    for (int dim : {2, 3}) mask = index_range(tape_, mask, dim, 0, config_.sequence);
    const TensorRef lowest = full(graph_, {}, std::numeric_limits<float>::lowest());
    scores = where(tape_, mask, scores, lowest);
    const TensorRef weights = softmax(tape_, scores, -1);
    to_same_dtype(graph_, weights, tape_.sequence());
    return join_heads(tape_, matmul(tape_, dropout(tape_, weights, config_.dropout), qkv[2]),
                      false);
  }

  TensorRef words_, positions_, head_;
  std::vector<GptLayer> layers_;
  std::vector<TensorRef> masks_, balance_losses_;
  NormWeights norm_;
};

}  // namespace

std::vector<std::string_view> gpt_presets() { return decoder_presets("gpt"); }

Result<GptConfig> gpt_preset(std::string_view name) {
  GptConfig config;
  const auto row = take_decoder(config, "gpt", "a GPT preset", name);
  if (!row) return Unexpected{row.error()};
  config.positions = row->sequence;
  config.tied = row->tied;
  return config;
}

void set_sequence(GptConfig& config, std::int64_t tokens) {
  config.sequence = tokens;
  config.positions = std::max(config.positions, tokens);
}

Result<ExecutionGraph> build_gpt(const GptConfig& config) {
  const auto good =
      all_good({check_transformer(config), check_positions(config),
                expect_countable("mask of positions", {config.positions, config.positions}),
                check_next_token(config), check_experts(config, config.experts)});
  if (!good) return Unexpected{good.error()};
  return GptBuilder(config).build();
}

}  // namespace perfmodel
