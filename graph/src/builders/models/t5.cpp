#include "perfmodel/graph/build_transformers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "builders/emit/ops.hpp"
#include "transformer_parts.hpp"

namespace perfmodel {
namespace {

constexpr double kT5Eps = 1e-6;

struct Attention {
  LinearWeights query, key, value, out;
  TensorRef bias;  // positions; only in a stack's first layer
  TensorRef norm;
};
struct FeedForward {
  LinearWeights gate, wide, narrow;  // the gate may not exist
};
struct T5Layer {
  Attention self, cross;             // the latter in a decoder
  LinearWeights router;              // in a sparse layer
  std::vector<FeedForward> experts;  // one in a dense layer
  TensorRef norm;
};
struct Stack {
  std::vector<T5Layer> layers;
  TensorRef norm;
  bool decoder = false;
};

class T5Builder : public ModelBuilder<T5Config> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    words_ = step_.parameter({config_.vocabulary, config_.hidden});
    encoder_ = make_stack(config_.layers, false);
    decoder_ = make_stack(config_.decoder_layers, true);
    head_ = config_.gated ? step_.parameter({config_.vocabulary, config_.hidden}) : words_;
    return run_on_tokens(
        step_, config_, config_.target_sequence, [&](TensorRef tokens, TensorRef labels) {
          const TensorRef read = apply(encoder_, tokens, config_.sequence, {});
          const TensorRef shifted = shift_right(tape_, labels);
          TensorRef x = apply(decoder_, shifted, config_.target_sequence, read);
          if (!config_.gated)
            x = mul(tape_, x, 1.0 / std::sqrt(static_cast<double>(config_.hidden)));
          return token_loss(tape_, linear(tape_, x, head_), labels, false);
        });
  }

 private:
  std::int64_t inner() const { return config_.heads * config_.head_width; }

  Attention make_attention(bool with_bias) {
    Attention made;
    made.query = make_linear(step_, config_.hidden, inner(), false);
    made.key = make_linear(step_, config_.hidden, inner(), false);
    made.value = make_linear(step_, config_.hidden, inner(), false);
    made.out = make_linear(step_, inner(), config_.hidden, false);
    if (with_bias) made.bias = step_.parameter({config_.buckets, config_.heads});
    made.norm = step_.parameter({config_.hidden});
    return made;
  }

  Stack make_stack(std::int64_t layers, bool decoder) {
    Stack stack;
    stack.decoder = decoder;
    for (std::int64_t i = 0; i < layers; ++i) {
      T5Layer& layer = stack.layers.emplace_back();
      layer.self = make_attention(i == 0);
      if (decoder) layer.cross = make_attention(false);
      const bool sparse = config_.experts > 0 && i % 2 == 1;
      if (sparse) layer.router = make_linear(step_, config_.hidden, config_.experts, false);
      for (std::int64_t e = 0; e < (sparse ? config_.experts : 1); ++e) {
        FeedForward& made = layer.experts.emplace_back();
        if (config_.gated) {
          made.gate = make_linear(step_, config_.hidden, config_.feed_forward, false);
        }
        made.wide = make_linear(step_, config_.hidden, config_.feed_forward, false);
        made.narrow = make_linear(step_, config_.feed_forward, config_.hidden, false);
      }
      layer.norm = step_.parameter({config_.hidden});
    }
    stack.norm = step_.parameter({config_.hidden});
    return stack;
  }

  TensorRef norm(TensorRef x, TensorRef weight) {
    return rms_norm(tape_, x, weight, kT5Eps, false);
  }
  TensorRef drop(TensorRef x) { return dropout(tape_, x, config_.dropout); }

  // 0 if a token may be looked at, else the lowest number: [B, 1, 1, S], or [B, 1, S, S] for a
  // decoder that must not see later tokens.
  TensorRef additive_mask(std::int64_t length, bool causal) {
    TensorRef mask = ones(graph_, DType::kFloat32, {config_.batch, length});
    if (causal) {
      const TensorRef line = arange(graph_, length);
      TensorRef wide = unsqueeze(tape_, unsqueeze(tape_, line, 0), 0);
      wide = index_all(tape_, wide, 2);
      const TensorRef columns = unsqueeze(tape_, unsqueeze(tape_, line, 0), 2);
      const Shape shape = {config_.batch, length, length};
      const TensorRef past = graph_.new_tensor(DType::kBool, {1, length, length});
      graph_.leaf_op("aten::le.Tensor", {wide, columns}, {past}, tape_.sequence());
      const TensorRef seen = to_dtype_alone(graph_, past, DType::kFloat32, tape_.sequence());
      const TensorRef each = unsqueeze(tape_, expand(tape_, seen, shape), 1);
      mask = mul(tape_, each, unsqueeze(tape_, unsqueeze(tape_, mask, 1), 2));
    } else {
      mask = unsqueeze(tape_, unsqueeze(tape_, index_all(tape_, mask, 0), 1), 2);
      mask = index_all(tape_, mask, 3);
    }
    to_same_dtype(graph_, mask, tape_.sequence());
    return mul(tape_, subtract_from(tape_, 1.0, mask), kLowestFloat);
  }

  TensorRef apply(const Stack& stack, TensorRef tokens, std::int64_t length, TensorRef read) {
    const TensorRef ids = view(tape_, tokens, {-1, length});
    TensorRef x = embedding_lookup(tape_, words_, ids);
    const TensorRef mask = additive_mask(length, stack.decoder);
    TensorRef read_mask;
    if (stack.decoder) read_mask = additive_mask(config_.sequence, false);
    x = drop(x);
    TensorRef bias, read_bias;
    for (const T5Layer& layer : stack.layers) {
      if (!bias.exists()) {
        bias = add(tape_,
                   relative_position_bias(tape_, layer.self.bias, length, length, !stack.decoder),
                   mask);
      }
      TensorRef normed = norm(x, layer.self.norm);
      x = add(tape_, x, drop(attention(layer.self, normed, normed, bias)));
      if (stack.decoder) {
        if (!read_bias.exists()) {
          const TensorRef none =
              zeros(graph_, DType::kFloat32, {1, config_.heads, length, config_.sequence});
          read_bias = add(tape_, none, read_mask);
        }
        normed = norm(x, layer.cross.norm);
        x = add(tape_, x, drop(attention(layer.cross, normed, read, read_bias)));
      }
      normed = norm(x, layer.norm);
      x = add(tape_, x, drop(feed_forward(layer, normed)));
    }
    return drop(norm(x, stack.norm));
  }

  TensorRef heads(TensorRef x) { return split_heads(tape_, x, config_.heads, true); }

  // No scaling: the initial weights take care of it.
  TensorRef attention(const Attention& layer, TensorRef x, TensorRef read, TensorRef bias) {
    const TensorRef query = heads(linear(tape_, x, layer.query));
    const TensorRef key = heads(linear(tape_, read, layer.key));
    const TensorRef value = heads(linear(tape_, read, layer.value));
    const TensorRef scores = matmul(tape_, query, transpose(tape_, key, 3, 2));
    add_in_place(tape_, scores, bias);
    to_same_dtype(graph_, scores, tape_.sequence());
    const TensorRef weights = softmax(tape_, scores, -1);
    to_same_dtype(graph_, weights, tape_.sequence());
    return linear(tape_, join_heads(tape_, matmul(tape_, drop(weights), value), true), layer.out);
  }

  TensorRef feed_forward(const FeedForward& layer, TensorRef x) {
    TensorRef wide;
    if (config_.gated) {
      wide = gelu_new(tape_, linear(tape_, x, layer.gate));
      wide = mul(tape_, wide, linear(tape_, x, layer.wide));
    } else {
      wide = relu(tape_, linear(tape_, x, layer.wide));
    }
    return linear(tape_, drop(wide), layer.narrow);
  }

  TensorRef feed_forward(const T5Layer& layer, TensorRef x) {
    if (!layer.router.weight.exists()) return feed_forward(layer.experts.front(), x);
    const Shape shape = graph_.shape(x);
    const std::int64_t share = (shape[1] + config_.experts - 1) / config_.experts;
    const std::int64_t tokens = shape[0] * std::min(share, config_.expert_capacity);
    to_same_dtype(graph_, x, tape_.sequence());
    const TensorRef chances = softmax(tape_, linear(tape_, x, layer.router), -1);
    const Routing routing = route_to_one(tape_, chances, config_.expert_capacity);
    const TensorRef next = clone(graph_, x, tape_.sequence());
    const TensorRef mixed = through_experts(
        tape_, routing, x, next, tokens, static_cast<std::int64_t>(layer.experts.size()),
        [&](std::int64_t i, TensorRef rows) { return feed_forward(layer.experts[i], rows); });
    return mul(tape_, routing.chance, mixed);
  }

  TensorRef words_, head_;
  Stack encoder_, decoder_;
};

struct T5Size {
  std::string_view name;
  std::int64_t layers, decoder_layers, hidden, heads, head_width, feed_forward, vocabulary;
  bool gated;
  std::int64_t experts, sequence, target_sequence;
};
constexpr std::array<T5Size, 5> kT5Sizes = {
    {{"t5-small", 6, 6, 512, 8, 64, 2048, 32128, false, 0, 512, 128},
     {"t5-base", 12, 12, 768, 12, 64, 3072, 32128, false, 0, 512, 128},
     {"t5-large", 24, 24, 1024, 16, 64, 4096, 32128, false, 0, 512, 128},
     {"flan-t5-base", 12, 12, 768, 12, 64, 2048, 32128, true, 0, 512, 128},
     {"switchxl4", 24, 24, 1024, 32, 128, 16384, 32128, false, 4, 512, 512}}};

Result<void> check(const T5Config& config) {
  TransformerConfig shared = config;
  shared.heads = 1;  // heads have a width of their own
  return all_good(
      {check_transformer(shared), expect_at_least("heads", 1, config.heads),
       expect_layers("decoder layers", config.decoder_layers),
       expect_at_least("target sequence", 2, config.target_sequence),
       expect_at_least("head width", 1, config.head_width),
       expect_at_least("buckets", 4, config.buckets), expect_at_least("experts", 0, config.experts),
       expect_at_least("expert capacity", 1, config.expert_capacity),
       expect_countable("attention scores", {config.batch, config.heads, config.sequence,
                                             std::max(config.sequence, config.target_sequence)}),
       expect_countable("queries", {config.hidden, config.heads, config.head_width})});
}

}  // namespace

std::vector<std::string_view> t5_presets() { return preset_names(kT5Sizes); }

Result<T5Config> t5_preset(std::string_view name) {
  for (const T5Size& size : kT5Sizes) {
    if (size.name != name) continue;
    T5Config config;
    config.name = name;
    config.layers = size.layers;
    config.decoder_layers = size.decoder_layers;
    config.hidden = size.hidden;
    config.heads = size.heads;
    config.head_width = size.head_width;
    config.feed_forward = size.feed_forward;
    config.vocabulary = size.vocabulary;
    config.gated = size.gated;
    config.experts = size.experts;
    config.sequence = size.sequence;
    config.target_sequence = size.target_sequence;
    return config;
  }
  return unknown_preset("a T5 preset", name, t5_presets());
}

Result<ExecutionGraph> build_t5(const T5Config& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  if (config.attention != TransformerConfig::Attention::kEager) {
    return fail(
        ErrorCode::kImpossible,
        "attention: expected eager (the bias of T5 needs a gradient), found a fused kernel");
  }
  return T5Builder(config).build();
}

}  // namespace perfmodel
