#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "builders/emit/ops.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "transformer_parts.hpp"

namespace perfmodel {
namespace {

constexpr double kTransformerEps = 1e-5;

struct HeadedAttention {
  LinearWeights key, value, query, out;
  NormWeights norm;  // after the sum
};
struct TransformerLayer {
  HeadedAttention self;
  std::optional<HeadedAttention> cross;  // in a decoder
  LinearWeights wide, narrow;
  NormWeights norm;
};

class EncoderDecoder : public ModelBuilder<EncoderDecoderConfig> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    words_ = step_.parameter({config_.vocabulary, config_.hidden});
    positions_ = step_.buffer(DType::kFloat32, {config_.positions, config_.hidden});
    make_layers(encoder_, config_.layers, false);
    make_layers(decoder_, config_.decoder_layers, true);
    return run_on_tokens(step_, config_, config_.target_sequence,
                         [&](TensorRef tokens, TensorRef labels) {
                           const TensorRef read = encode(tokens);
                           const TensorRef x = decode(shift_right(tape_, labels), read);
                           return token_loss(tape_, linear(tape_, x, words_), labels, false,
                                             config_.label_smoothing);
                         });
  }

 private:
  HeadedAttention make_attention() {
    HeadedAttention made;
    for (LinearWeights* weights : {&made.key, &made.value, &made.query, &made.out}) {
      *weights = make_linear(step_, config_.hidden, config_.hidden);
    }
    made.norm = make_layer_norm(step_, config_.hidden);
    return made;
  }

  void make_layers(std::vector<TransformerLayer>& layers, std::int64_t count, bool decoder) {
    for (std::int64_t i = 0; i < count; ++i) {
      TransformerLayer& layer = layers.emplace_back();
      layer.self = make_attention();
      if (decoder) layer.cross = make_attention();
      layer.wide = make_linear(step_, config_.hidden, config_.feed_forward);
      layer.narrow = make_linear(step_, config_.feed_forward, config_.hidden);
      layer.norm = make_layer_norm(step_, config_.hidden);
    }
  }

  TensorRef embed(TensorRef tokens, std::int64_t length) {
    const TensorRef ids = view(tape_, tokens, {-1, length});
    const double scale = std::sqrt(static_cast<double>(config_.hidden));
    const TensorRef words = mul(tape_, embedding_lookup(tape_, words_, ids), scale);
    const TensorRef places = embedding_lookup(tape_, positions_, arange(graph_, length));
    return dropout(tape_, add(tape_, words, places), config_.dropout);
  }

  TensorRef encode(TensorRef tokens) {
    TensorRef x = embed(tokens, config_.sequence);
    for (const TransformerLayer& layer : encoder_) {
      x = feed_forward(layer, attend(layer.self, x, x, {}));
    }
    return x;
  }

  TensorRef decode(TensorRef tokens, TensorRef read) {
    TensorRef x = embed(tokens, config_.target_sequence);
    const TensorRef mask = causal_mask(tape_, config_.batch, config_.target_sequence);
    for (const TransformerLayer& layer : decoder_) {
      x = attend(layer.self, x, x, mask);
      x = feed_forward(layer, attend(*layer.cross, x, read, {}));
    }
    return x;
  }

  TensorRef drop(TensorRef x) { return dropout(tape_, x, config_.dropout); }

  TensorRef sum_and_norm(TensorRef x, TensorRef change, const NormWeights& norm) {
    return layer_norm(tape_, add(tape_, x, drop(change)), norm, kTransformerEps);
  }

  TensorRef feed_forward(const TransformerLayer& layer, TensorRef x) {
    const TensorRef wide =
        dropout(tape_, relu(tape_, linear(tape_, x, layer.wide)), config_.inner_dropout);
    return sum_and_norm(x, linear(tape_, wide, layer.narrow), layer.norm);
  }

  // [B, S, H] -> [B * heads, S, D]
  TensorRef heads(TensorRef x) {
    const TensorRef split = contiguous(tape_, split_heads(tape_, x, config_.heads, true));
    return view(tape_, split, {config_.batch * config_.heads, -1, width()});
  }

  std::int64_t width() const { return config_.hidden / config_.heads; }

  // Tokens of `x` look at tokens of `read`; without a mask at all of them.
  TensorRef attend(const HeadedAttention& layer, TensorRef x, TensorRef read, TensorRef mask) {
    const double factor = 1.0 / std::sqrt(static_cast<double>(width()));
    const TensorRef scaled = mul(tape_, linear(tape_, x, layer.query), factor);
    const TensorRef key = heads(linear(tape_, read, layer.key));
    const TensorRef value = heads(linear(tape_, read, layer.value));
    const TensorRef query = heads(scaled);
    const std::int64_t to = graph_.shape(x)[1], from = graph_.shape(read)[1];
    const Shape together = {config_.batch, config_.heads, to, from};
    TensorRef scores = bmm(tape_, query, transpose(tape_, key, 1, 2));
    if (mask.exists()) {
      scores = add(tape_, view(tape_, scores, together), mask);
      scores = view(tape_, scores, {config_.batch * config_.heads, to, from});
    }
    const TensorRef weights = dropout(tape_, softmax(tape_, scores, -1), config_.inner_dropout);
    TensorRef mixed =
        view(tape_, bmm(tape_, weights, value), {config_.batch, config_.heads, to, width()});
    mixed = reshape(tape_, transpose(tape_, mixed, 1, 2), {config_.batch, to, config_.hidden});
    return sum_and_norm(x, linear(tape_, mixed, layer.out), layer.norm);
  }

  TensorRef words_, positions_;
  std::vector<TransformerLayer> encoder_, decoder_;
};

struct TransformerSize {
  std::string_view name;
  std::int64_t hidden, heads, feed_forward;
  double dropout;
};
constexpr std::array<TransformerSize, 2> kTransformerSizes = {
    {{"transformer-base", 512, 8, 2048, 0.1}, {"transformer-big", 1024, 16, 4096, 0.3}}};

Result<void> check(const EncoderDecoderConfig& config) {
  TransformerConfig decoder = config;
  decoder.layers = config.decoder_layers;
  decoder.sequence = config.target_sequence;
  return all_good(
      {check_transformer(config), check_positions(config),
       expect_layers("decoder layers", config.decoder_layers),
       expect_at_least("target sequence", 2, config.target_sequence), check_transformer(decoder),
       check_positions(decoder), expect_probability("inner dropout", config.inner_dropout),
       expect_probability("label smoothing", config.label_smoothing),
       expect_countable("attention scores", {config.batch, config.heads, config.target_sequence,
                                             std::max(config.sequence, config.target_sequence)})});
}

}  // namespace

std::vector<std::string_view> transformer_presets() { return preset_names(kTransformerSizes); }

Result<EncoderDecoderConfig> transformer_preset(std::string_view name) {
  for (const TransformerSize& size : kTransformerSizes) {
    if (size.name != name) continue;
    EncoderDecoderConfig config;
    config.name = name;
    config.training.optimizer = TrainingOptions::Optimizer::kAdam;
    config.layers = config.decoder_layers = 6;
    config.hidden = size.hidden;
    config.heads = size.heads;
    config.feed_forward = size.feed_forward;
    config.dropout = size.dropout;
    config.vocabulary = 37'000;
    config.positions = 512;
    config.batch = 64;
    config.sequence = 32;
    return config;
  }
  return unknown_preset("a Transformer preset", name, transformer_presets());
}

std::int64_t parameter_count(const EncoderDecoderConfig& config) {
  const std::int64_t h = config.hidden, f = config.feed_forward;
  const std::int64_t attention = 4 * (h * h + h), norm = 2 * h;
  const std::int64_t feed_forward = 2 * h * f + f + h;
  return config.vocabulary * h + config.layers * (attention + feed_forward + 2 * norm) +
         config.decoder_layers * (2 * attention + feed_forward + 3 * norm);
}

Result<ExecutionGraph> build_transformer(const EncoderDecoderConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  if (config.attention != TransformerConfig::Attention::kEager) {
    return fail(ErrorCode::kImpossible,
                "attention: expected eager for this model, found a fused kernel");
  }
  return EncoderDecoder(config).build();
}

}  // namespace perfmodel
