#include "perfmodel/graph/build_transformers.hpp"

#include <cmath>
#include <vector>

#include "builders/emit/graph_reduction.hpp"
#include "builders/emit/ops.hpp"
#include "transformer_parts.hpp"

namespace perfmodel {
namespace {

constexpr double kOptEps = 1e-5;
constexpr std::int64_t kPositionOffset = 2;  // rows that no token uses
constexpr std::int64_t kPaddingRow = 1;

struct OptLayer {
  LinearWeights key, value, query, attention_out, wide, narrow;
  NormWeights first, second;
};

class OptBuilder : public ModelBuilder<OptConfig> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    make_parameters();
    return run_on_tokens(step_, config_, config_.sequence, [&](TensorRef tokens, TensorRef labels) {
      return token_loss(tape_, scores(tokens), labels, true);
    });
  }

 private:
  void make_parameters() {
    const std::int64_t width = config_.hidden;
    words_ = step_.parameter({config_.vocabulary, width});
    positions_ = step_.parameter({config_.positions + kPositionOffset, width});
    norm_ = make_layer_norm(step_, width);
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      OptLayer& layer = layers_.emplace_back();
      for (LinearWeights* weights :
           {&layer.key, &layer.value, &layer.query, &layer.attention_out}) {
        *weights = make_linear(step_, width, width);
      }
      layer.first = make_layer_norm(step_, width);
      layer.wide = make_linear(step_, width, config_.feed_forward);
      layer.narrow = make_linear(step_, config_.feed_forward, width);
      layer.second = make_layer_norm(step_, width);
    }
  }

  // Position of each token, padding not counted, two rows on.
  TensorRef position_ids(TensorRef mask) {
    const TensorRef whole = to_dtype_alone(graph_, mask, DType::kInt64, tape_.sequence());
    const TensorRef counted = cumsum(graph_, whole, 1, kNone, tape_.sequence());
    const TensorRef places = mul(tape_, counted, whole);
    const TensorRef from_zero =
        binary(graph_, "aten::sub.Tensor", places, Number(1), tape_.sequence());
    return add(tape_, from_zero, static_cast<int>(kPositionOffset));
  }

  // 0 if a token may be looked at, else the lowest number; [B, 1, S, S].
  TensorRef additive_mask(TensorRef padding) {
    const std::int64_t length = config_.sequence;
    const Shape shape = {config_.batch, 1, length, length};
    const TensorRef causal = causal_mask(tape_, config_.batch, length);

    TensorRef wide = unsqueeze(tape_, unsqueeze(tape_, index_all(tape_, padding, 0), 1), 2);
    wide = expand(tape_, index_all(tape_, wide, 3), shape);
    to_same_dtype(graph_, wide, tape_.sequence());
    const TensorRef inverted = subtract_from(tape_, 1.0, wide);
    const TensorRef padded = to_dtype_alone(graph_, inverted, DType::kBool, tape_.sequence());
    return add(tape_, masked_fill(tape_, inverted, padded, kLowestFloat), causal);
  }

  TensorRef scores(TensorRef tokens) {
    const TensorRef ids = view(tape_, tokens, {-1, config_.sequence});
    const TensorRef words = embedding_lookup(tape_, words_, ids, kPaddingRow);
    const TensorRef padding = ones(graph_, DType::kFloat32, {config_.batch, config_.sequence});
    const TensorRef mask = additive_mask(padding);
    const TensorRef positions = embedding_lookup(tape_, positions_, position_ids(padding));
    TensorRef x = add(tape_, words, positions);
    for (const OptLayer& layer : layers_) x = apply(layer, x, mask);
    x = layer_norm(tape_, x, norm_, kOptEps);
    return contiguous(tape_, linear(tape_, x, words_));
  }

  TensorRef apply(const OptLayer& layer, TensorRef x, TensorRef mask) {
    const TensorRef attended =
        linear(tape_, attention(layer, layer_norm(tape_, x, layer.first, kOptEps), mask),
               layer.attention_out);
    x = add(tape_, x, dropout(tape_, attended, config_.dropout));
    const Shape shape = graph_.shape(x);
    const TensorRef rows = reshape(tape_, x, {-1, config_.hidden});
    const TensorRef wide =
        relu(tape_, linear(tape_, layer_norm(tape_, rows, layer.second, kOptEps), layer.wide));
    const TensorRef narrow = dropout(tape_, linear(tape_, wide, layer.narrow), config_.dropout);
    return view(tape_, add(tape_, rows, narrow), shape);
  }

  TensorRef heads(TensorRef x) {
    return contiguous(tape_, split_heads(tape_, x, config_.heads, true));
  }

  TensorRef attention(const OptLayer& layer, TensorRef x, TensorRef mask) {
    const std::int64_t width = config_.hidden / config_.heads, length = config_.sequence;
    const double factor = 1.0 / std::sqrt(static_cast<double>(width));
    TensorRef query = mul(tape_, linear(tape_, x, layer.query), factor);
    TensorRef key = heads(linear(tape_, x, layer.key));
    TensorRef value = heads(linear(tape_, x, layer.value));
    query = heads(query);
    TensorRef mixed;
    if (config_.attention == TransformerConfig::Attention::kEager) {
      const Shape one_by_one = {config_.batch * config_.heads, -1, width};
      query = view(tape_, query, one_by_one);
      key = view(tape_, key, one_by_one);
      value = view(tape_, value, one_by_one);
      TensorRef scores = bmm(tape_, query, transpose(tape_, key, 1, 2));
      scores = view(tape_, scores, {config_.batch, config_.heads, length, length});
      scores = add(tape_, scores, mask);
      scores = maximum(tape_, scores, tensor_of_number(tape_, DType::kFloat32));
      scores = view(tape_, scores, {config_.batch * config_.heads, length, length});
      const TensorRef weights = dropout(tape_, softmax(tape_, scores, -1), config_.dropout);
      mixed =
          view(tape_, bmm(tape_, weights, value), {config_.batch, config_.heads, length, width});
    } else {
      mixed =
          fused_attention(tape_, config_.attention, query, key, value, config_.dropout, true, {});
    }
    return reshape(tape_, transpose(tape_, mixed, 1, 2), {config_.batch, length, config_.hidden});
  }

  TensorRef words_, positions_;
  NormWeights norm_;
  std::vector<OptLayer> layers_;
};

}  // namespace

std::vector<std::string_view> opt_presets() { return decoder_presets("opt"); }

Result<OptConfig> opt_preset(std::string_view name) {
  OptConfig config;
  const auto row = take_decoder(config, "opt", "an OPT preset", name);
  if (!row) return Unexpected{row.error()};
  config.positions = row->sequence;
  return config;
}

Result<ExecutionGraph> build_opt(const OptConfig& config) {
  const auto good =
      all_good({check_transformer(config), check_positions(config), check_next_token(config)});
  if (!good) return Unexpected{good.error()};
  return OptBuilder(config).build();
}

}  // namespace perfmodel
