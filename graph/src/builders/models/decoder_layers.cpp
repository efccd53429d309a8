#include "perfmodel/graph/detail/decoder_layers.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "builders/emit/ops.hpp"
#include "delta_rule.hpp"
#include "low_rank.hpp"

namespace perfmodel {
namespace {

constexpr double kLayersEps = 1e-5;

using Mixer = DecoderLayersConfig::Mixer;
using FeedForward = DecoderLayersConfig::FeedForward;

// SiLU(gate) * up of [..., 2 N] in one kernel, like fused SwiGLU: it moves as much as aten::glu.
TensorRef gated_unit(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  Shape shape = graph.shape(x);
  shape.back() /= 2;
  const TensorRef out = graph.new_tensor(graph.dtype(x), shape);
  graph.leaf_op("aten::glu", {x, -1}, {out}, tape.sequence());
  return tape.record_unary("GluBackward0", x, out, [&graph, x](TensorRef) {
    // The fused kernel reads x and half as much, and writes as much as x.
    return graph.leaf("aten::silu_backward", {x, x}, like(graph, x));
  });
}

// A kernel that reads x and writes as much, forward and backward: rotary positions, a short
// convolution with its activation.
TensorRef one_pass(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = unary(graph, "aten::silu", x, tape.sequence());
  return tape.record_unary("FusedPassBackward0", x, out, [&graph](TensorRef gradient) {
    return unary(graph, "aten::silu", gradient);
  });
}

// ReLU squared in one kernel.
TensorRef squared_relu(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = unary(graph, "aten::silu", x, tape.sequence());
  return tape.record_unary("FusedActivationBackward0", x, out, [&graph, x](TensorRef gradient) {
    return graph.leaf("aten::silu_backward", {gradient, x}, like(graph, x));
  });
}

// Rows of x [T, W] in the order of `order` [R]; backward each token sums its R / T rows without
// moving them, in one kernel.
TensorRef permuted(AutogradTape& tape, TensorRef x, TensorRef order) {
  GraphBuilder& graph = tape.graph();
  const Shape from = graph.shape(x);
  const std::int64_t rows = graph.numel(order);
  const TensorRef out = index_select(graph, x, order, tape.sequence());
  return tape.record_unary(
      "PermuteRowsBackward0", x, out, [&graph, from, rows](TensorRef gradient) {
        if (rows <= from[0] || rows % from[0] != 0) {
          return contiguous_view(
              graph, index_select(graph, gradient, graph.new_tensor(DType::kInt64, {from[0]})),
              from);
        }
        const TensorRef split =
            contiguous_view(graph, gradient, {from[0], rows / from[0], from[1]});
        return sum(graph, split, {1}, false);
      });
}

// Sums the rows [R, W] per token [T, W]; backward each row takes the gradient of its token.
TensorRef unpermuted(AutogradTape& tape, TensorRef rows, std::int64_t tokens) {
  GraphBuilder& graph = tape.graph();
  const Shape from = graph.shape(rows);
  const TensorRef order = graph.new_tensor(DType::kInt64, {from[0]});
  TensorRef out;
  if (from[0] > tokens && from[0] % tokens == 0) {
    const TensorRef split = contiguous_view(graph, rows, {tokens, from[0] / tokens, from[1]});
    out = sum(graph, split, {1}, false, tape.sequence());
  } else {
    const TensorRef picked = graph.new_tensor(DType::kInt64, {tokens});
    out = index_select(graph, rows, picked, tape.sequence());
  }
  return tape.record_unary(
      "UnpermuteRowsBackward0", rows, out,
      [&graph, order](TensorRef gradient) { return index_select(graph, gradient, order); });
}

struct MixerWeights {
  AdaptedLinear in, out;                            // all kinds
  AdaptedLinear query_down, key_value_down, query;  // latent attention
  TensorRef query_norm, key_value_norm, inner_norm;
};

struct InnerWeights {
  AdaptedLinear up, down;  // dense
  LinearWeights router, shrink, widen, shared_up, shared_down;
  TensorRef up_of_experts, down_of_experts;
};

struct BlockWeights {
  TensorRef first, second;  // norms
  MixerWeights mixer;
  InnerWeights inner;
};

class LayersBuilder : public ModelBuilder<DecoderLayersConfig> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    make_parameters();
    TensorRef tokens, labels;
    TrainingStep::Parts parts;
    parts.inputs = [&] {
      tokens = step_.input(DType::kInt64, {config_.batch, residual_tokens()});
      labels = step_.input(DType::kInt64, {config_.batch, config_.sequence});
    };
    parts.forward = [&] {
      TensorRef x = embedding_lookup(tape_, words_, tokens);
      for (const BlockWeights& block : blocks_) x = apply(block, x);
      return token_loss(tape_, linear(tape_, gathered(norm(x, norm_)), head_), labels, false);
    };
    return step_.run(parts);
  }

 private:
  std::int64_t residual_tokens() const { return config_.sequence / config_.residual_parts; }
  bool frozen() const { return config_.lora.rank > 0; }
  bool has_states() const {
    return config_.mixer == Mixer::kStateSpace || config_.mixer == Mixer::kDeltaNet;
  }
  std::int64_t width_of_experts() const {
    return config_.expert_input > 0 ? config_.expert_input : config_.hidden;
  }
  // Gate and up are in one matrix.
  std::int64_t fused(std::int64_t width) const { return config_.gated ? 2 * width : width; }

  TensorRef frozen_parameter(Shape shape) {
    step_.freeze(frozen());
    const TensorRef made = step_.parameter(std::move(shape));
    step_.freeze(false);
    return made;
  }
  AdaptedLinear adapted(std::int64_t in, std::int64_t out, bool of_attention) {
    const bool adapts = of_attention || config_.lora.on == LoraConfig::On::kAll;
    return make_adapted(step_, in, out, config_.biases, adapts ? config_.lora.rank : 0, frozen());
  }

  void make_parameters() {
    words_ = frozen_parameter({config_.vocabulary, config_.hidden});
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      BlockWeights& block = blocks_.emplace_back();
      if (config_.mixer != Mixer::kNone) block.first = frozen_parameter({config_.hidden});
      if (config_.inner != FeedForward::kNone) block.second = frozen_parameter({config_.hidden});
      make_mixer(block.mixer);
      if (config_.inner == FeedForward::kDense) {
        block.inner.up = adapted(config_.hidden, fused(config_.feed_forward), false);
        block.inner.down = adapted(config_.feed_forward, config_.hidden, false);
      }
      if (config_.inner == FeedForward::kExperts) make_experts(block.inner);
    }
    norm_ = frozen_parameter({config_.hidden});
    step_.freeze(frozen());
    head_ = config_.tied ? LinearWeights{words_, {}}
                         : make_linear(step_, config_.hidden, config_.vocabulary, false);
    step_.freeze(false);
  }

  void make_mixer(MixerWeights& weights) {
    const std::int64_t hidden = config_.hidden, heads = config_.heads;
    if (config_.mixer == Mixer::kAttention) {
      const std::int64_t width = config_.head_width;
      const std::int64_t gates = config_.gated_heads ? heads : 0;
      weights.in = adapted(hidden, (heads + 2 * config_.kv_heads + gates) * width, true);
      weights.out = adapted(heads * width, hidden, true);
    } else if (config_.mixer == Mixer::kLatent) {
      const LatentAttentionSizes& of = config_.latent;
      const std::int64_t query_width = heads * (of.plain_width + of.rotary_width);
      if (of.query_rank > 0) {
        weights.query_down = adapted(hidden, of.query_rank, true);
        weights.query_norm = frozen_parameter({of.query_rank});
      }
      weights.query = adapted(of.query_rank > 0 ? of.query_rank : hidden, query_width, true);
      weights.key_value_down = adapted(hidden, of.key_value_rank + of.rotary_width, true);
      weights.key_value_norm = frozen_parameter({of.key_value_rank});
      weights.in = adapted(of.key_value_rank, heads * (of.plain_width + of.value_width), true);
      weights.out = adapted(heads * of.value_width, hidden, true);
    } else if (has_states()) {
      const std::int64_t inner = state_width();
      const std::int64_t scalars = config_.mixer == Mixer::kDeltaNet ? 2 : 1;  // per head
      weights.in = adapted(hidden, inner + mixed_width() + scalars * config_.states.heads, true);
      weights.inner_norm =
          frozen_parameter({config_.mixer == Mixer::kDeltaNet ? config_.states.head_width : inner});
      weights.out = adapted(inner, hidden, true);
    }
  }

  void make_experts(InnerWeights& weights) {
    const std::int64_t seen = width_of_experts(), inner = config_.experts.hidden;
    weights.router = make_linear(step_, config_.hidden, config_.experts.experts, false);
    weights.up_of_experts = step_.parameter({config_.held, fused(inner), seen});
    weights.down_of_experts = step_.parameter({config_.held, seen, inner});
    if (seen != config_.hidden) {
      weights.shrink = make_linear(step_, config_.hidden, seen, false);
      weights.widen = make_linear(step_, seen, config_.hidden, false);
    }
    if (config_.shared_width == 0) return;
    weights.shared_up = make_linear(step_, config_.hidden, fused(config_.shared_width), false);
    weights.shared_down = make_linear(step_, config_.shared_width, config_.hidden, false);
  }

  TensorRef norm(TensorRef x, TensorRef weight) {
    return fused_rms_norm(tape_, x, weight, kLayersEps);
  }

  // From the rank's tokens of the residual stream to all of its group.
  TensorRef gathered(TensorRef x) {
    if (config_.residual_parts == 1) return x;
    const Shape shape = graph_.shape(x);
    x = expand(tape_, unsqueeze(tape_, x, 1),
               {shape[0], config_.residual_parts, shape[1], shape[2]});
    return reshape(tape_, x, {shape[0], shape[1] * config_.residual_parts, shape[2]});
  }
  TensorRef scattered(TensorRef x) {
    if (config_.residual_parts == 1) return x;
    return slice(tape_, x, 1, 0, residual_tokens());
  }

  TensorRef apply(const BlockWeights& block, TensorRef x) {
    if (config_.mixer != Mixer::kNone) {
      x = add(tape_, x, scattered(mixed(block.mixer, gathered(norm(x, block.first)))));
    }
    if (config_.inner == FeedForward::kNone) return x;
    const TensorRef normed = norm(x, block.second);
    if (config_.inner == FeedForward::kDense) {
      return add(tape_, x, scattered(dense(block.inner, gathered(normed))));
    }
    TensorRef made = through_experts(block.inner, normed);
    if (config_.shared_width > 0) {
      made = add(tape_, made, scattered(shared(block.inner, gathered(normed))));
    }
    return add(tape_, x, made);
  }

  TensorRef activated(TensorRef x) {
    if (!config_.gated) return squared_relu(tape_, x);
    if (config_.fused) return gated_unit(tape_, x);
    const int last = static_cast<int>(graph_.shape(x).size()) - 1;
    const std::int64_t half = graph_.shape(x).back() / 2;
    const auto parts = split_with_sizes(tape_, x, {half, half}, last);
    return mul(tape_, silu(tape_, parts[0]), parts[1]);
  }
  TensorRef dense(const InnerWeights& weights, TensorRef x) {
    return linear(tape_, activated(linear(tape_, x, weights.up)), weights.down);
  }
  TensorRef shared(const InnerWeights& weights, TensorRef x) {
    return linear(tape_, activated(linear(tape_, x, weights.shared_up)), weights.shared_down);
  }

  TensorRef through_experts(const InnerWeights& weights, TensorRef x) {
    const Shape shape = graph_.shape(x);
    const TensorRef tokens = view(tape_, x, {-1, shape.back()});
    const std::int64_t count = graph_.shape(tokens)[0];
    const TensorRef chances = softmax(tape_, linear(tape_, tokens, weights.router), -1, true);
    const TensorRef best = graph_.new_tensor(graph_.dtype(chances), {count, config_.experts.top_k});
    const TensorRef places = graph_.new_tensor(DType::kInt64, {count, config_.experts.top_k});
    graph_.leaf_op("aten::topk", {chances, config_.experts.top_k, -1, true, true}, {best, places},
                   tape_.sequence());
    const TensorRef order = graph_.new_tensor(DType::kInt64, {config_.rows});
    const TensorRef ends = graph_.new_tensor(DType::kInt32, {config_.held});
    const TensorRef seen =
        weights.shrink.weight.exists() ? linear(tape_, tokens, weights.shrink) : tokens;
    TensorRef rows = permuted(tape_, seen, order);
    rows = activated(grouped_linear(tape_, rows, weights.up_of_experts, ends));
    rows = grouped_linear(tape_, rows, weights.down_of_experts, ends);
    TensorRef made = unpermuted(tape_, rows, count);
    if (weights.widen.weight.exists()) made = linear(tape_, made, weights.widen);
    return view(tape_, made, shape);
  }

  TensorRef mixed(const MixerWeights& weights, TensorRef x) {
    if (config_.mixer == Mixer::kStateSpace) return through_states(weights, x);
    if (config_.mixer == Mixer::kDeltaNet) return through_delta_rule(weights, x);
    const bool latent = config_.mixer == Mixer::kLatent;
    const TensorRef joined = latent ? latent_attention(weights, x) : attention(weights, x);
    return linear(tape_, joined, weights.out);
  }

  // Scores of all tokens, masked and normalised in one kernel; a window masks more of them.
  TensorRef eager_core(TensorRef q, TensorRef k, TensorRef v, std::int64_t value_width) {
    const std::int64_t batch = config_.batch, length = config_.sequence, heads = config_.heads;
    const auto per_head = [&](TensorRef x) {
      x = transpose(tape_, x, 1, 2);
      const Shape shape = graph_.shape(x);
      if (shape[1] == heads) return x;
      const std::int64_t share = heads / shape[1];
      x = expand(tape_, unsqueeze(tape_, x, 2), {batch, shape[1], share, length, shape[3]});
      return reshape(tape_, x, {batch, heads, length, shape[3]});
    };
    const TensorRef scores = matmul(tape_, per_head(q), transpose(tape_, per_head(k), 2, 3));
    const TensorRef mask = graph_.new_tensor(DType::kBool, {1, 1, length, length});
    const TensorRef mixed = matmul(tape_, masked_softmax(tape_, scores, mask), per_head(v));
    return reshape(tape_, transpose(tape_, mixed, 1, 2), {batch, length, heads * value_width});
  }

  // Heads of q [B, S, H, D], k and v [B, S, K, ...] -> [B, S, H Dv].
  TensorRef core(TensorRef q, TensorRef k, TensorRef v, std::int64_t value_width) {
    const std::int64_t batch = config_.batch, length = config_.sequence;
    if (config_.attention == TransformerConfig::Attention::kEager) {
      return eager_core(q, k, v, value_width);
    }
    const bool slides = config_.window > 0 && length > config_.window;
    const auto heads_first = [&](TensorRef x) {
      const Shape shape = graph_.shape(x);
      if (slides) {
        // A chunk each; a token that looks back a window has as many scores as a block of one.
        x = reshape(tape_, x,
                    {batch * length / config_.window, config_.window, shape[2], shape[3]});
      }
      return transpose(tape_, x, 1, 2);
    };
    TensorRef out = fused_attention(tape_, heads_first(q), heads_first(k), heads_first(v),
                                    {.kernel = FusedAttention::Kernel::kFlash,
                                     .dropout = 0,
                                     .causal = !slides || config_.chunked});
    out = transpose(tape_, out, 1, 2);
    return reshape(tape_, out, {batch, length, config_.heads * value_width});
  }

  TensorRef attention(const MixerWeights& weights, TensorRef x) {
    const std::int64_t width = config_.head_width, kv = config_.kv_heads;
    const std::int64_t gates = config_.gated_heads ? config_.heads : 0;
    const Shape shape = {config_.batch, config_.sequence, config_.heads + 2 * kv + gates, width};
    const TensorRef all = view(tape_, linear(tape_, x, weights.in), shape);
    Shape sizes = {config_.heads, kv, kv};
    if (gates > 0) sizes.push_back(gates);
    const auto parts = split_with_sizes(tape_, all, sizes, 2);
    const TensorRef made = core(rotated(parts[0]), shared_by_heads(rotated(parts[1])),
                                shared_by_heads(parts[2]), width);
    if (gates == 0) return made;
    const TensorRef gate = reshape(tape_, parts[3], graph_.shape(made));
    return mul(tape_, made, silu(tape_, gate));
  }

  // Rotary positions of x [B, S, H, D]: x cos + (-second half, first half) sin.
  TensorRef rotated(TensorRef x) {
    if (config_.fused) return one_pass(tape_, x);
    const std::int64_t width = graph_.shape(x).back();
    const auto angle = [&] {
      return graph_.new_tensor(graph_.dtype(x), {1, config_.sequence, 1, width});
    };
    const TensorRef first = slice(tape_, x, 3, 0, width / 2);
    const TensorRef second = slice(tape_, x, 3, width / 2, kSliceEnd);
    const TensorRef swapped = cat(tape_, {neg(tape_, second), first}, -1);
    return add(tape_, mul(tape_, x, angle()), mul(tape_, swapped, angle()));
  }

  // Keys or values [B, S, K, D] as [B, S, H, D]: fused kernels read them in place.
  TensorRef shared_by_heads(TensorRef x) {
    const Shape shape = graph_.shape(x);
    const std::int64_t share = config_.heads / shape[2];
    if (config_.fused || share == 1) return x;
    x = expand(tape_, unsqueeze(tape_, x, 3), {shape[0], shape[1], shape[2], share, shape[3]});
    return reshape(tape_, x, {shape[0], shape[1], config_.heads, shape[3]});
  }

  TensorRef latent_attention(const MixerWeights& weights, TensorRef x) {
    const LatentAttentionSizes& of = config_.latent;
    const std::int64_t batch = config_.batch, length = config_.sequence, heads = config_.heads;
    const std::int64_t width = of.plain_width + of.rotary_width;
    TensorRef narrow = x;
    if (of.query_rank > 0) {
      narrow = norm(linear(tape_, x, weights.query_down), weights.query_norm);
    }
    const TensorRef q = one_pass(
        tape_, view(tape_, linear(tape_, narrow, weights.query), {batch, length, heads, width}));
    const auto down = split_with_sizes(tape_, linear(tape_, x, weights.key_value_down),
                                       {of.key_value_rank, of.rotary_width}, 2);
    const TensorRef wide =
        view(tape_, linear(tape_, norm(down[0], weights.key_value_norm), weights.in),
             {batch, length, heads, of.plain_width + of.value_width});
    const auto parts = split_with_sizes(tape_, wide, {of.plain_width, of.value_width}, 3);
    // The turned part is the same for all heads.
    const TensorRef turned =
        expand(tape_, unsqueeze(tape_, down[1], 2), {batch, length, heads, of.rotary_width});
    const TensorRef k = cat(tape_, {parts[0], turned}, 3);
    return core(q, k, parts[1], of.value_width);
  }

  std::int64_t state_width() const { return config_.states.heads * config_.states.head_width; }
  std::int64_t mixed_width() const {
    return state_width() + 2 * config_.states.groups * config_.states.state;
  }

  // In chunks of Q tokens: C B^T [Q, Q] of each group, times x within a chunk; the states of chunks
  // B^T x, and their contribution to the next ones, C h.
  TensorRef through_states(const MixerWeights& weights, TensorRef x) {
    const StateSpaceSizes& of = config_.states;
    const std::int64_t batch = config_.batch, length = config_.sequence;
    const std::int64_t chunk = std::min(of.chunk, length), inner = state_width();
    const std::int64_t chunks = batch * length / chunk, taken = of.groups * of.state;
    const auto parts =
        split_with_sizes(tape_, linear(tape_, x, weights.in), {inner, mixed_width(), of.heads}, 2);
    const auto streams =
        split_with_sizes(tape_, one_pass(tape_, parts[1]), {inner, taken, taken}, 2);
    const auto by_chunk = [&](TensorRef from, std::int64_t groups) {
      const std::int64_t width = graph_.shape(from).back() / groups;
      const TensorRef split = reshape(tape_, from, {chunks, chunk, groups, width});
      return reshape(tape_, transpose(tape_, split, 1, 2), {chunks * groups, chunk, width});
    };
    const TensorRef values = by_chunk(streams[0], of.heads);
    const TensorRef b = by_chunk(streams[1], of.groups), c = by_chunk(streams[2], of.groups);
    const auto per_head = [&](TensorRef from) {
      const Shape shape = graph_.shape(from);
      const std::int64_t share = of.heads / of.groups;
      const TensorRef wide =
          expand(tape_, unsqueeze(tape_, from, 1), {shape[0], share, shape[1], shape[2]});
      return reshape(tape_, wide, {shape[0] * share, shape[1], shape[2]});
    };
    const TensorRef scores = bmm(tape_, c, transpose(tape_, b, 1, 2));
    const TensorRef within = bmm(tape_, per_head(scores), values);
    const TensorRef states = bmm(tape_, transpose(tape_, per_head(b), 1, 2), values);
    const TensorRef made = add(tape_, within, bmm(tape_, per_head(c), states));
    TensorRef out = reshape(tape_, made, {chunks, of.heads, chunk, of.head_width});
    out = reshape(tape_, transpose(tape_, out, 1, 2), {batch, length, inner});
    out = norm(mul(tape_, out, parts[0]), weights.inner_norm);
    return linear(tape_, out, weights.out);
  }

  // Chunks of C tokens of all heads; each head of keys and queries serves several of values.
  TensorRef through_delta_rule(const MixerWeights& weights, TensorRef x) {
    const StateSpaceSizes& of = config_.states;
    const std::int64_t batch = config_.batch, length = config_.sequence, heads = of.heads;
    const std::int64_t chunk = std::min(of.chunk, length), chunks = batch * length / chunk;
    const std::int64_t inner = state_width(), taken = of.groups * of.state;
    const auto parts =
        split_with_sizes(tape_, linear(tape_, x, weights.in), {inner, mixed_width(), 2 * heads}, 2);
    const auto streams =
        split_with_sizes(tape_, one_pass(tape_, parts[1]), {taken, taken, inner}, 2);
    const auto by_chunk = [&](TensorRef from, std::int64_t groups) {
      const std::int64_t width = graph_.shape(from).back() / groups, share = heads / groups;
      from = reshape(tape_, from, {chunks, chunk, groups, 1, width});
      from = expand(tape_, from, {chunks, chunk, groups, share, width});
      from = transpose(tape_, transpose(tape_, from, 1, 2), 2, 3);
      return reshape(tape_, from, {chunks * heads, chunk, width});
    };
    TensorRef out = delta_rule(tape_, by_chunk(streams[0], of.groups),
                               by_chunk(streams[1], of.groups), by_chunk(streams[2], heads));
    out = transpose(tape_, reshape(tape_, out, {chunks, heads, chunk, of.head_width}), 1, 2);
    out = norm(reshape(tape_, out, {batch, length, heads, of.head_width}), weights.inner_norm);
    out = mul(tape_, reshape(tape_, out, {batch, length, inner}), silu(tape_, parts[0]));
    return linear(tape_, out, weights.out);
  }

  TensorRef words_, norm_;
  std::vector<BlockWeights> blocks_;
  LinearWeights head_;
};

Result<void> check_layers(const DecoderLayersConfig& config) {
  if (auto good = expect_at_least("heads", 1, config.heads); !good) return good;
  TransformerConfig sizes = config;
  if (config.head_width > 0) sizes.heads = 1;  // their width is not hidden / heads
  if (auto good = check_transformer(sizes); !good) return good;
  if (auto good = check_next_token(config); !good) return good;
  if (config.sequence % config.residual_parts != 0) {
    return bad_config(fmt::format("sequence: expected a multiple of the {} parts, found {}",
                                  config.residual_parts, config.sequence));
  }
  if (config.inner == FeedForward::kExperts) {
    if (auto good = all_good({expect_at_least("experts", 1, config.experts.experts),
                              expect_at_least("expert-hidden", 1, config.experts.hidden),
                              expect_at_least("held experts", 1, config.held),
                              expect_at_least("rows of experts", 1, config.rows)});
        !good) {
      return good;
    }
  }
  if (config.mixer == Mixer::kStateSpace || config.mixer == Mixer::kDeltaNet) {
    const StateSpaceSizes& of = config.states;
    const std::int64_t chunk = std::min(of.chunk, config.sequence);
    if (of.groups < 1 || of.heads % of.groups != 0 || config.sequence % chunk != 0) {
      return bad_config(fmt::format(
          "states: expected heads in multiples of the {} groups and tokens of the {} of a chunk, "
          "found {} and {}",
          of.groups, chunk, of.heads, config.sequence));
    }
  }
  if (config.window > 0 && config.sequence > config.window &&
      config.sequence % config.window != 0) {
    return bad_config(fmt::format("sequence: expected a multiple of the window of {}, found {}",
                                  config.window, config.sequence));
  }
  return {};
}

}  // namespace

Result<ExecutionGraph> build_decoder_layers(const DecoderLayersConfig& config) {
  if (auto good = check_layers(config); !good) return Unexpected{good.error()};
  return LayersBuilder(config).build();
}

}  // namespace perfmodel
