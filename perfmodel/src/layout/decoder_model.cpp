#include <algorithm>

#include "base/each_name.hpp"
#include "layer_kinds.hpp"
#include "perfmodel/layout.hpp"

namespace perfmodel {
namespace {

using Mixer = LayerKind::Mixer;
using Inner = LayerKind::Inner;

double real_number(std::int64_t number) { return static_cast<double>(number); }

struct ParameterParts {
  double embeddings = 0, layers = 0, head = 0;  ///< `head` with the last norm
  double experts = 0;                           ///< routed ones, of `layers`
};

double norm_width(const DecoderModel& model) {
  return (model.rms_norm ? 1 : 2) * real_number(model.hidden);
}

double attention_parameters(const DecoderModel& model) {
  const double h = real_number(model.hidden), width = real_number(head_width_of(model));
  const double q = real_number(model.heads) * width, kv = real_number(kv_heads_of(model)) * width;
  const double gate = model.gated_heads ? h * q : 0;
  return 2 * h * q + gate + 2 * h * kv + (model.biases ? q + 2 * kv + h : 0);
}

double latent_parameters(const DecoderModel& model) {
  const LatentAttentionSizes& of = model.latent;
  const double h = real_number(model.hidden), heads = real_number(model.heads);
  const double query = heads * real_number(of.plain_width + of.rotary_width);
  const double rank = real_number(of.query_rank), kv_rank = real_number(of.key_value_rank);
  const double queries = rank > 0 ? h * rank + rank + rank * query : h * query;
  return queries + h * (kv_rank + real_number(of.rotary_width)) + kv_rank +
         kv_rank * heads * real_number(of.plain_width + of.value_width) +
         heads * real_number(of.value_width) * h;
}

double state_parameters(const DecoderModel& model) {
  const StateSpaceSizes& of = model.states;
  const double h = real_number(model.hidden);
  const double inner = real_number(of.heads * of.head_width);
  const double in = 2 * inner + 2 * real_number(of.groups * of.state) + real_number(of.heads);
  if (!model.delta_states) return h * in + inner + inner * h;
  // A decay and a beta per head, and one norm for all of them.
  return h * (in + real_number(of.heads)) + real_number(of.head_width) + inner * h;
}

// Parameters of matrices from and to `input` of that width.
double feed_forward_parameters(const DecoderModel& model, double input, double width) {
  return (model.gated ? 3 : 2) * input * width;
}

ParameterParts parameter_parts(const DecoderModel& model) {
  const double h = real_number(model.hidden);
  ParameterParts parts{
      .embeddings = real_number(model.vocabulary + model.positions) * h,
      .head = norm_width(model) + (model.tied ? 0 : real_number(model.vocabulary) * h)};
  for (const LayerKind& kind : layer_kinds(model)) {
    const LayerParameters layer = layer_parameters(model, kind);
    parts.layers += real_number(kind.layers) * (layer.dense + layer.experts);
    parts.experts += real_number(kind.layers) * layer.experts;
  }
  if (model.next_tokens > 0) {
    const LayerParameters layer = layer_parameters(model, layer_kinds(model).back());
    const double times = real_number(model.next_tokens);
    parts.layers += times * (layer.dense + layer.experts + 2 * h * h);
    parts.experts += times * layer.experts;
  }
  return parts;
}

double active_share(const DecoderModel& model) {
  const DecoderExperts& of = model.experts;
  return of.experts > 0 ? real_number(of.top_k) / real_number(of.experts) : 0;
}

}  // namespace

std::vector<LayerKind> layer_kinds(const DecoderModel& model) {
  std::vector<LayerKind> kinds;
  const auto add = [&](const LayerKind& kind) {
    if (kind.layers > 0) kinds.push_back(kind);
  };
  const Inner inner = model.experts.experts > 0 ? Inner::kExperts : Inner::kDense;
  const Mixer mixer = model.latent.key_value_rank > 0 ? Mixer::kLatent : Mixer::kAttention;
  if (model.delta_states) {
    add({Mixer::kDeltaNet, inner, false, model.state_layers});
    add({mixer, inner, false, model.layers - model.state_layers});
    return kinds;
  }
  if (model.state_layers > 0) {
    add({Mixer::kStateSpace, Inner::kNone, false, model.state_layers});
    add({mixer, Inner::kNone, false, model.attention_layers});
    add({Mixer::kNone, inner, false, model.layers - model.state_layers - model.attention_layers});
    return kinds;
  }
  const std::int64_t dense = inner == Inner::kExperts ? model.experts.dense_layers : 0;
  // Layers that see all tokens have experts, as far as there are enough of these (Llama 4).
  const std::int64_t windowed_dense = std::min(dense, model.windowed_layers);
  const std::int64_t windowed = model.windowed_layers - windowed_dense;
  add({mixer, Inner::kDense, true, windowed_dense});
  add({mixer, Inner::kDense, false, dense - windowed_dense});
  add({mixer, inner, true, windowed});
  add({mixer, inner, false, model.layers - dense - windowed});
  return kinds;
}

namespace {

// Spreads `rare` evenly among `common`, which comes first.
std::vector<DecoderLayerKind> interleaved(const LayerKind& common,
                                          const std::vector<DecoderLayerKind>& rare) {
  const std::int64_t others = std::ssize(rare), all = common.layers + others;
  std::vector<DecoderLayerKind> order;
  for (std::int64_t i = 0; i < all; ++i) {
    const std::int64_t before = i * others / all;
    order.push_back((i + 1) * others / all > before ? rare[before] : common);
  }
  return order;
}

}  // namespace

std::vector<DecoderLayerKind> kinds_in_order(const DecoderModel& model) {
  std::vector<LayerKind> kinds = layer_kinds(model);
  std::vector<DecoderLayerKind> order;
  std::ranges::reverse(kinds);
  for (const LayerKind& kind : kinds) {
    // Dense layers come first, but between layers with experts in Llama 4.
    const bool leads = kind.inner == Inner::kDense && !model.chunked && !kind.slides;
    if (leads && !order.empty() && order.front().inner == Inner::kExperts) {
      order.insert(order.begin(), kind.layers, kind);
    } else {
      order = interleaved(kind, order);
    }
  }
  return order;
}

void take_sizes(const DecoderModel& model, std::int64_t tp, DecoderLayersConfig& config) {
  config.dropout = 0;
  PERFMODEL_COPY(config, model, hidden, chunked, gated_heads, gated, latent, states, window);
  PERFMODEL_COPY(config.experts, model.experts, experts, top_k);
  config.heads = model.heads / tp;
  config.kv_heads = std::max<std::int64_t>(1, kv_heads_of(model) / tp);
  config.head_width = head_width_of(model);
  config.feed_forward = std::max<std::int64_t>(1, model.feed_forward / tp);
  if (model.state_layers > 0) {
    config.states.heads /= tp;
    config.states.groups = std::max<std::int64_t>(1, config.states.groups / tp);
  }
  config.shared_width = model.experts.shared / tp;
  config.gated_shared = model.experts.gated_shared;
  config.expert_input = expert_input_of(model);
}

bool has_plain_layers(const DecoderModel& model) {
  const bool usual = model.head_width == 0 || model.head_width * model.heads == model.hidden;
  return usual && model.experts.experts == 0 && model.latent.key_value_rank == 0 &&
         model.state_layers == 0 && model.windowed_layers == 0 && !model.gated_heads;
}

bool is_plain(const DecoderModel& model) {
  return has_plain_layers(model) && model.next_tokens == 0;
}

double active_layer_parameters(const DecoderModel& model) {
  double sum = 0;
  for (const LayerKind& kind : layer_kinds(model)) {
    const LayerParameters layer = layer_parameters(model, kind);
    sum += real_number(kind.layers) * (layer.dense + active_share(model) * layer.experts);
  }
  return sum / real_number(model.layers);
}

std::int64_t head_width_of(const DecoderModel& model) {
  if (model.head_width > 0) return model.head_width;
  return model.heads > 0 ? model.hidden / model.heads : 0;
}
std::int64_t kv_heads_of(const DecoderModel& model) {
  return model.kv_heads > 0 ? model.kv_heads : model.heads;
}
std::int64_t expert_hidden_of(const DecoderModel& model) {
  return model.experts.hidden > 0 ? model.experts.hidden : model.feed_forward;
}
std::int64_t expert_input_of(const DecoderModel& model) {
  return model.experts.input > 0 ? model.experts.input : model.hidden;
}

std::int64_t key_value_width(const DecoderModel& model) {
  const LatentAttentionSizes& of = model.latent;
  if (of.key_value_rank > 0) {
    return model.heads * (of.plain_width + of.rotary_width + of.value_width);
  }
  return 2 * kv_heads_of(model) * head_width_of(model);
}

LayerParameters layer_parameters(const DecoderModel& model, const LayerKind& kind) {
  const double h = real_number(model.hidden);
  LayerParameters made;
  if (kind.mixer == Mixer::kAttention) made.dense += attention_parameters(model);
  if (kind.mixer == Mixer::kLatent) made.dense += latent_parameters(model);
  if (kind.mixer == Mixer::kStateSpace || kind.mixer == Mixer::kDeltaNet) {
    made.dense += state_parameters(model);
  }
  if (kind.mixer != Mixer::kNone) made.dense += norm_width(model);
  if (kind.inner == Inner::kNone) return made;
  made.dense += norm_width(model);
  if (kind.inner == Inner::kDense) {
    const double f = real_number(model.feed_forward);
    made.dense += feed_forward_parameters(model, h, f);
    if (model.biases) made.dense += (model.gated ? 2 : 1) * f + h;
    return made;
  }
  const double input = real_number(expert_input_of(model));
  made.experts = real_number(model.experts.experts) *
                 feed_forward_parameters(model, input, real_number(expert_hidden_of(model)));
  made.dense += h * real_number(model.experts.experts) +
                feed_forward_parameters(model, h, real_number(model.experts.shared)) +
                (model.experts.input > 0 ? 2 * h * input : 0) +
                (model.experts.gated_shared ? h : 0);
  return made;
}

std::int64_t parameter_count(const DecoderModel& model) {
  const ParameterParts parts = parameter_parts(model);
  return static_cast<std::int64_t>(parts.embeddings + parts.layers + parts.head);
}

std::int64_t active_parameter_count(const DecoderModel& model) {
  const ParameterParts parts = parameter_parts(model);
  return parameter_count(model) -
         static_cast<std::int64_t>((1 - active_share(model)) * parts.experts);
}

double expert_parameter_count(const DecoderModel& model) { return parameter_parts(model).experts; }

double attention_flop_per_token(const DecoderModel& model, std::int64_t sequence) {
  const LatentAttentionSizes& of = model.latent;
  const double width = of.key_value_rank > 0
                           ? real_number(of.plain_width + of.rotary_width + of.value_width) / 2
                           : real_number(head_width_of(model));
  const double each = 6 * real_number(model.heads) * width;
  double seen = 0;
  const double window = (model.chunked ? 1 : 2) * real_number(std::min(model.window, sequence));
  for (const LayerKind& kind : layer_kinds(model)) {
    if (!kind.attends()) continue;
    // A token sees half of the tokens or of a chunk on average, and all of a window.
    const double tokens = kind.slides ? window : real_number(sequence);
    seen += real_number(kind.layers) * std::min(tokens, real_number(sequence));
  }
  return each * seen;
}

double model_flop_per_token(const DecoderModel& model, std::int64_t sequence) {
  const ParameterParts parts = parameter_parts(model);
  const double words = real_number(model.vocabulary) * real_number(model.hidden);
  const double output = (model.tied ? words : 0) + real_number(model.next_tokens) * words;
  const double layers = parts.layers - (1 - active_share(model)) * parts.experts;
  return 6 * (layers + parts.head + output) + attention_flop_per_token(model, sequence);
}

double job_flop_per_token(const LayoutJob& job) {
  const double whole = attention_flop_per_token(job.model, job.sequence);
  const double attention = job.packed_mean * whole;
  const double others = model_flop_per_token(job.model, job.sequence) - whole;
  return attention + (job.lora_rank == 0 ? 1 : 2.0 / 3) * others;
}

}  // namespace perfmodel
