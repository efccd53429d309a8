#include "recomputed_layer.hpp"

#include <algorithm>
#include <cmath>

#include "pinned_blocks.hpp"

namespace perfmodel {
namespace {

double real_of(std::int64_t number) { return static_cast<double>(number); }

/// A part of a layer, per token and for all tensor-parallel ranks together: multiplications,
/// numbers that its pointwise kernels read and write, and numbers that it keeps for the backward
/// pass and that are gone if it is computed again; `inputs` of these are inputs of products.
struct LayerPart {
  double products = 0, traffic = 0, kept = 0, inputs = 0;

  LayerPart operator+(const LayerPart& other) const {
    return {products + other.products, traffic + other.traffic, kept + other.kept,
            inputs + other.inputs};
  }
};

// Gate, up and down, or up and down; the activation reads the results of the first products.
LayerPart feed_forward_part(const DecoderModel& model, double input, double width) {
  const double made = model.gated ? 2 : 1;
  return {(made + 1) * input * width, (made + 1) * width, (made + 1) * width, width};
}

struct LayerParts {
  LayerPart norms, latent, dense, experts, shared, rest;
  double expert_activation = 0;  ///< numbers

  LayerPart all() const { return norms + latent + dense + experts + shared + rest; }
};

LayerParts parts_of(const DecoderModel& model, const LayerKind& kind) {
  const double hidden = real_of(model.hidden);
  const LatentAttentionSizes& of = model.latent;
  LayerParts parts;
  parts.norms = {0, 4 * hidden, 2 * hidden, 2 * hidden};
  parts.rest.traffic = 6 * hidden;  // two residual sums
  if (kind.mixer == LayerKind::Mixer::kLatent) {
    const double heads = real_of(model.heads);
    const double query = heads * real_of(of.plain_width + of.rotary_width);
    const double up = heads * real_of(of.plain_width + of.value_width);
    parts.latent = {real_of(of.query_rank) * query + real_of(of.key_value_rank) * up,
                    2 * (query + up), 2 * query + heads * real_of(of.value_width)};
  }
  if (kind.inner == LayerKind::Inner::kDense) {
    parts.dense = feed_forward_part(model, hidden, real_of(model.feed_forward));
  }
  if (kind.inner == LayerKind::Inner::kExperts) {
    const double rows = real_of(model.experts.top_k), input = real_of(expert_input_of(model));
    const double width = real_of(expert_hidden_of(model));
    const LayerPart one = feed_forward_part(model, input, width);
    // Rows are put in order of their experts and back.
    parts.experts = {rows * one.products, rows * (one.traffic + 4 * input),
                     rows * (one.kept + 2 * input), rows * (one.inputs + input)};
    parts.expert_activation = rows * width;
    parts.shared = feed_forward_part(model, hidden, real_of(model.experts.shared));
  }
  const LayerParameters weights = layer_parameters(model, kind);
  parts.rest.products = std::max(
      0.0, weights.dense - parts.latent.products - parts.dense.products - parts.shared.products);
  return parts;
}

LayerPart named_parts(const LayoutRecompute& recompute, const DecoderModel& model,
                      const LayerParts& parts) {
  const double made = model.gated ? 2 : 1;
  const std::pair<LayoutRecompute::Module, LayerPart> known[] = {
      {LayoutRecompute::kNorms, parts.norms},
      {LayoutRecompute::kLatentProjection, parts.latent},
      {LayoutRecompute::kDenseInner, parts.dense},
      {LayoutRecompute::kExpertInner, parts.experts},
      {LayoutRecompute::kSharedExpert, parts.shared}};
  LayerPart sum;
  for (const auto& [module, part] : known) {
    if ((recompute.modules & module) != 0) sum = sum + part;
  }
  const bool activation = (recompute.modules & LayoutRecompute::kExpertActivation) != 0;
  if (activation && (recompute.modules & LayoutRecompute::kExpertInner) == 0) {
    const double made_again = parts.expert_activation;
    sum = sum + LayerPart{0, (made + 1) * made_again, made_again, made_again};
  }
  return sum;
}

double share_of(double part, double whole) { return whole > 0 ? std::min(1.0, part / whole) : 0; }

// Scales the kernels of `again` and their range to `kernel_us`.
void scale_kernels(PassCosts& again, double kernel_us) {
  const double share = again.kernel_us > 0 ? kernel_us / again.kernel_us : 0;
  again.low_us *= share;
  again.high_us *= share;
  again.kernel_us = kernel_us;
}

// Results of every second product with a weight and of attention, on a rank.
double kept_by_op(const ShardQuestion& question) {
  const DecoderModel& model = question.model;
  const double width = real_of(head_width_of(model)), queries = real_of(model.heads) * width;
  const DecoderExperts& experts = model.experts;
  const double inner = experts.experts > 0
                           ? real_of(experts.top_k * expert_hidden_of(model) + experts.shared)
                           : real_of(model.feed_forward);
  const double split =
      queries + 2 * real_of(kv_heads_of(model)) * width + (model.gated ? 2 : 1) * inner;
  const double parts = question.sequence_parallel ? real_of(question.tp) : 1;
  const double numbers =
      (split / 2 + queries) / real_of(question.tp) + real_of(model.hidden) / parts;
  return real_of(question.tokens()) * numbers * weight_width(question.precision);
}

// The layer keeps `kept` bytes until its backward pass begins; the rest comes back then.
void keep(double kept, ShardCosts& costs) {
  PartCosts& layer = costs.layer;
  layer.backward = layer.backward + layer.again;
  costs.layer_extra_bytes += layer.kept_bytes - kept;
  layer.pinned_bytes *= layer.kept_bytes > 0 ? kept / layer.kept_bytes : 0;
  layer.kept_bytes = kept;
}

// torchtitan's policy: results of scatters over tensor-parallel ranks are kept, too.
void recompute_by_op(const ShardQuestion& question, ShardCosts& costs) {
  PartCosts& layer = costs.layer;
  PassCosts& again = layer.again = layer.forward;
  again.product_us /= 2;
  scale_kernels(again, again.kernel_us - again.product_us - again.attention_us);
  again.attention_us = 0;
  again.comm_us -= again.by_kind.reduce_scatter.us;
  again.by_kind.reduce_scatter = {};
  keep(std::min(layer.kept_bytes, costs.boundary_bytes + kept_by_op(question)), costs);
}

// A part takes its share of the time of products and of pointwise kernels by its share of the work.
void recompute_modules(const ShardQuestion& question, const LayerKind& kind, ShardCosts& costs) {
  const LayoutRecompute& recompute = question.recompute;
  const LayerParts parts = parts_of(question.model, kind);
  const LayerPart part = named_parts(recompute, question.model, parts), all = parts.all();
  PartCosts& layer = costs.layer;
  const PassCosts& forward = layer.forward;
  PassCosts again = forward;
  const bool attends = (recompute.modules & LayoutRecompute::kCoreAttention) != 0 &&
                       question.attention != LayoutJob::Attention::kEager;
  again.attention_us = attends ? forward.attention_us : 0;
  again.product_us = share_of(part.products, all.products) * forward.product_us;
  const double others = forward.kernel_us - forward.product_us - forward.attention_us;
  scale_kernels(
      again, again.product_us + again.attention_us + share_of(part.traffic, all.traffic) * others);
  const double share = forward.kernel_us > 0 ? again.kernel_us / forward.kernel_us : 0;
  again.host_us *= share;
  again.attention_host_us = again.router_host_us = 0;
  // One of a layer's two parts between collectives.
  const bool inner = (recompute.modules & LayoutRecompute::kDenseInner) != 0 &&
                     kind.inner == LayerKind::Inner::kDense;
  again.comm_us *= inner ? 0.5 : 0;
  again.by_kind *= inner ? 0.5 : 0;
  again.collectives = inner ? again.collectives / 2 : 0;
  layer.again = again;
  const bool experts = (recompute.modules & LayoutRecompute::kExpertInner) != 0 &&
                       kind.inner == LayerKind::Inner::kExperts;
  layer.experts_again = experts ? 1 : 0;
  layer.context_again = attends ? 1 : 0;
  const double ranks = real_of(question.tp);
  // Inputs of products are kept in a byte less with fp8 activations.
  const double bytes =
      part.kept * weight_width(question.precision) - (question.fp8_activations ? part.inputs : 0);
  const double freed = real_of(question.tokens()) / ranks * bytes;
  keep(std::max(std::min(layer.kept_bytes, costs.boundary_bytes), layer.kept_bytes - freed), costs);
}

// Whole layers; a group keeps one input, and all its layers come back together.
void recompute_whole(const ShardQuestion& question, ShardCosts& costs) {
  const LayoutRecompute& recompute = question.recompute;
  const double share = recomputed_layers(recompute, question.model.layers, question.chunks) /
                       real_of(question.model.layers);
  if (share == 0) return;
  PartCosts& layer = costs.layer;
  layer.again = share * layer.forward;
  layer.experts_again = layer.context_again = share;
  layer.backward = layer.backward + layer.again;
  const double chunk = std::max(1.0, real_of(question.model.layers / question.chunks));
  const double group =
      recompute.what == LayoutRecompute::kUniform ? std::min(chunk, real_of(recompute.count)) : 1;
  const double inputs = share * std::ceil(chunk / group) / chunk;  // per layer
  costs.layer_extra_bytes += group * layer.kept_bytes;
  layer.kept_bytes = inputs * costs.boundary_bytes + (1 - share) * layer.kept_bytes;
  layer.pinned_bytes =
      inputs * pinned_block_bytes(costs.boundary_bytes) + (1 - share) * layer.pinned_bytes;
}

}  // namespace

double recomputed_layers(const LayoutRecompute& recompute, std::int64_t layers,
                         std::int64_t chunks) {
  switch (recompute.what) {
    case LayoutRecompute::kFull:
    case LayoutRecompute::kUniform: return real_of(layers);
    case LayoutRecompute::kEvery: return real_of(layers / recompute.count);
    case LayoutRecompute::kBlock: return real_of(std::min(layers, recompute.count * chunks));
    default: return 0;
  }
}

double recomputed_products(const LayoutRecompute& recompute, const DecoderModel& model,
                           const LayerKind& kind) {
  const LayerParts parts = parts_of(model, kind);
  return share_of(named_parts(recompute, model, parts).products, parts.all().products);
}

void recompute_layer(const ShardQuestion& question, const LayerKind& kind, ShardCosts& costs) {
  if (question.recompute == LayoutRecompute::kOp) return recompute_by_op(question, costs);
  if (question.recompute.what == LayoutRecompute::kModules) {
    return recompute_modules(question, kind, costs);
  }
  recompute_whole(question, costs);
}

}  // namespace perfmodel
