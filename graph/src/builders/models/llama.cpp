#include "perfmodel/graph/build_transformers.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "builders/emit/ops.hpp"
#include "expert_layers.hpp"
#include "low_rank.hpp"
#include "transformer_parts.hpp"

namespace perfmodel {
namespace {

constexpr double kLlamaEps = 1e-5;

struct LlamaLayer {
  AdaptedLinear query, key, value, attention_out, gate, up, down;
  ExpertLayer experts;      // instead of gate, up and down
  TensorRef first, second;  // norms
};

class LlamaBuilder : public ModelBuilder<LlamaConfig> {
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
  std::int64_t head_width() const { return config_.hidden / config_.heads; }

  AdaptedLinear adapted(std::int64_t in, std::int64_t out, bool of_attention) {
    const LoraConfig& lora = config_.lora;
    const bool adapts = of_attention || lora.on == LoraConfig::On::kAll;
    return make_adapted(step_, in, out, config_.biases, adapts ? lora.rank : 0, lora.rank > 0);
  }

  void make_parameters() {
    const std::int64_t width = config_.hidden, kv_width = config_.kv_heads * head_width();
    const bool frozen = config_.lora.rank > 0;
    step_.freeze(frozen);
    words_ = step_.parameter({config_.vocabulary, width});
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      LlamaLayer& layer = layers_.emplace_back();
      layer.query = adapted(width, width, true);
      layer.key = adapted(width, kv_width, true);
      layer.value = adapted(width, kv_width, true);
      layer.attention_out = adapted(width, width, true);
      if (config_.experts.experts > 0) {
        step_.freeze(frozen);
        layer.experts =
            make_expert_layer(step_, config_.experts, width, config_.feed_forward, true);
      } else {
        layer.gate = adapted(width, config_.feed_forward, false);
        layer.up = adapted(width, config_.feed_forward, false);
        layer.down = adapted(config_.feed_forward, width, false);
      }
      step_.freeze(frozen);
      layer.first = step_.parameter({width});
      layer.second = step_.parameter({width});
    }
    norm_ = step_.parameter({width});
    head_ = config_.tied ? LinearWeights{words_, {}}
                         : make_linear(step_, width, config_.vocabulary, false);
    step_.freeze(false);
  }

  // Angle of each position and pair of channels: an outer product of positions and frequencies,
  // made once per step.
  void make_angles(TensorRef places) {
    const TensorRef frequencies = graph_.new_tensor(DType::kFloat32, {head_width() / 2});
    TensorRef rows = index_all(tape_, unsqueeze(tape_, frequencies, 0), 1);
    rows = expand(tape_, unsqueeze(tape_, rows, 2), {1, head_width() / 2, 1});
    TensorRef columns = unsqueeze(tape_, index_all(tape_, places, 0), 1);
    columns = index_all(tape_, columns, 2);
    const TensorRef real = to_dtype_alone(graph_, columns, DType::kFloat32, tape_.sequence());
    const TensorRef angles = transpose(tape_, matmul(tape_, rows, real), 1, 2);
    const TensorRef twice = cat(tape_, {angles, angles}, -1);
    cosine_ = unary(graph_, "aten::cos", twice, tape_.sequence());
    sine_ = unary(graph_, "aten::sin", twice, tape_.sequence());
    if (const DType half = graph_.dtype(words_); half != DType::kFloat32) {
      cosine_ = to_dtype(graph_, cosine_, half, tape_.sequence());
      sine_ = to_dtype(graph_, sine_, half, tape_.sequence());
    }
  }

  TensorRef causal_mask() {
    const std::int64_t length = config_.sequence;
    const TensorRef all = full(graph_, {length, length}, std::numeric_limits<float>::lowest());
    const TensorRef future = like(graph_, all);
    graph_.leaf_op("aten::triu", {all, 1}, {future}, tape_.sequence());
    TensorRef wide = unsqueeze(tape_, unsqueeze(tape_, future, 0), 1);
    wide = index_all(tape_, index_all(tape_, wide, 2), 3);
    return expand(tape_, wide, {config_.batch, 1, length, length});
  }

  TensorRef norm(TensorRef x, TensorRef weight) {
    return config_.fused_norms ? fused_rms_norm(tape_, x, weight, kLlamaEps)
                               : rms_norm(tape_, x, weight, kLlamaEps, true);
  }

  TensorRef scores(TensorRef tokens) {
    TensorRef x = embedding_lookup(tape_, words_, tokens);
    const TensorRef places = unsqueeze(tape_, arange(graph_, config_.sequence), 0);
    TensorRef mask;
    if (config_.attention == TransformerConfig::Attention::kEager) mask = causal_mask();
    make_angles(places);
    for (const LlamaLayer& layer : layers_) x = apply(layer, x, mask);
    return linear(tape_, norm(x, norm_), head_);
  }

  TensorRef apply(const LlamaLayer& layer, TensorRef x, TensorRef mask) {
    x = add(tape_, x,
            linear(tape_, attention(layer, norm(x, layer.first), mask), layer.attention_out));
    const TensorRef normed = norm(x, layer.second);
    if (config_.experts.experts > 0) return add(tape_, x, through_experts(layer.experts, normed));
    const TensorRef gate = silu(tape_, linear(tape_, normed, layer.gate));
    const TensorRef wide = mul(tape_, gate, linear(tape_, normed, layer.up));
    return add(tape_, x, linear(tape_, wide, layer.down));
  }

  TensorRef through_experts(const ExpertLayer& experts, TensorRef x) {
    const ExpertsResult made = apply_experts(tape_, config_.experts, experts, x,
                                             [&](TensorRef wide) { return silu(tape_, wide); });
    if (made.balance_loss.exists()) balance_losses_.push_back(made.balance_loss);
    return made.out;
  }

  // The halves (a, b) of each head become (-b, a).
  TensorRef rotate_half(TensorRef x) {
    const std::int64_t half = head_width() / 2;
    const TensorRef first = slice(tape_, x, 3, 0, half);
    const TensorRef second = slice(tape_, x, 3, half, kSliceEnd);
    return cat(tape_, {neg(tape_, second), first}, -1);
  }

  TensorRef rotate(TensorRef x, TensorRef cosine, TensorRef sine) {
    const TensorRef straight = mul(tape_, x, cosine);
    return add(tape_, straight, mul(tape_, rotate_half(x), sine));
  }

  // Every head of keys and values serves a group of heads of queries.
  TensorRef repeat(TensorRef x) {
    const std::int64_t group = config_.heads / config_.kv_heads;
    if (group == 1) return x;
    const Shape shape = graph_.shape(x);
    x = index_all(tape_, index_all(tape_, x, 0), 1);
    x = index_all(tape_, index_all(tape_, unsqueeze(tape_, x, 2), 3), 4);
    x = expand(tape_, x, {shape[0], shape[1], group, shape[2], shape[3]});
    return reshape(tape_, x, {shape[0], config_.heads, shape[2], shape[3]});
  }

  TensorRef attention(const LlamaLayer& layer, TensorRef x, TensorRef mask) {
    TensorRef query = linear(tape_, x, layer.query);
    TensorRef key = linear(tape_, x, layer.key);
    TensorRef value = linear(tape_, x, layer.value);
    query = split_heads(tape_, query, config_.heads, true);
    key = split_heads(tape_, key, config_.kv_heads, true);
    value = split_heads(tape_, value, config_.kv_heads, true);
    const TensorRef cosine = unsqueeze(tape_, cosine_, 1), sine = unsqueeze(tape_, sine_, 1);
    query = rotate(query, cosine, sine);
    key = repeat(rotate(key, cosine, sine));
    value = repeat(value);
    TensorRef mixed;
    if (config_.attention == TransformerConfig::Attention::kEager) {
      const double root = std::sqrt(static_cast<double>(head_width()));
      TensorRef scores = div(tape_, matmul(tape_, query, transpose(tape_, key, 2, 3)), root);
      scores = add(tape_, scores, mask);
      const TensorRef weights = softmax(tape_, scores, -1, true);
      to_same_dtype(graph_, weights, tape_.sequence());
      mixed = matmul(tape_, dropout(tape_, weights, 0), value);
    } else {
      mixed = fused_attention(tape_, config_.attention, query, key, value, 0, true, {});
    }
    const TensorRef joined = contiguous(tape_, transpose(tape_, mixed, 1, 2));
    return reshape(tape_, joined, {config_.batch, config_.sequence, config_.hidden});
  }

  TensorRef words_, norm_, cosine_, sine_;
  std::vector<LlamaLayer> layers_;
  std::vector<TensorRef> balance_losses_;
  LinearWeights head_;
};

Result<void> check(const LlamaConfig& config) {
  const auto good = all_good({check_transformer(config), check_next_token(config),
                              check_experts(config, config.experts),
                              expect_at_least("kv-heads", 1, config.kv_heads),
                              check_lora(config.lora, config.experts.experts > 0)});
  if (!good) return good;
  if (config.heads % config.kv_heads != 0) {
    return fail(
        ErrorCode::kImpossible,
        fmt::format("heads: expected a multiple of the {} heads of keys and values, found {}",
                    config.kv_heads, config.heads));
  }
  if (config.hidden / config.heads % 2 != 0) {
    return fail(ErrorCode::kImpossible,
                fmt::format("hidden: expected heads of even width (rotary positions turn pairs), "
                            "found {}",
                            config.hidden / config.heads));
  }
  if (config.training.weights != DType::kFloat32 && !config.fused_norms) {
    return fail(ErrorCode::kImpossible,
                "weights: expected fused norms with weights of a half type, found norms in ops of "
                "their own");
  }
  if (config.dropout != 0) {
    return fail(
        ErrorCode::kImpossible,
        fmt::format("dropout: expected 0 (this family has none), found {}", config.dropout));
  }
  return {};
}

}  // namespace

std::vector<std::string_view> llama_presets() { return decoder_presets("llama"); }

Result<LlamaConfig> llama_preset(std::string_view name) {
  LlamaConfig config;
  const auto row = take_decoder(config, "llama", "a Llama preset", name);
  if (!row) return Unexpected{row.error()};
  config.kv_heads = row->kv_heads;
  config.tied = row->tied;
  config.experts.experts = row->extras.experts.experts;
  config.experts.top_k = row->extras.experts.top_k;
  config.dropout = 0;
  return config;
}

Result<ExecutionGraph> build_llama(const LlamaConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return LlamaBuilder(config).build();
}

}  // namespace perfmodel
