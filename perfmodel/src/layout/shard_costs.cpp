#include "shard_costs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <utility>

#include "layer_kinds.hpp"
#include "memory/graph_memory.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/decoder_layers.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "record/match_collectives.hpp"

namespace perfmodel {
namespace {

using Precision = LayoutJob::Precision;

constexpr CollectiveSum CollectiveSums::*kKindsOfCollectives[] = {
    &CollectiveSums::all_reduce, &CollectiveSums::all_gather, &CollectiveSums::reduce_scatter};

DType weights_of(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return DType::kFloat32;
    case Precision::kFp16:
      return DType::kFloat16;
    case Precision::kBf16:
    case Precision::kFp8:
    case Precision::kFp4:
      return DType::kBFloat16;
  }
  return DType::kBFloat16;
}

template <class Config>
void fill_config(Config& config, const ShardQuestion& question, std::int64_t layers) {
  const DecoderModel& model = question.model;
  config.name = model.name;
  config.batch = question.micro_batch;
  config.sequence = question.sequence / question.cp;
  config.layers = layers;
  config.hidden = model.hidden;
  config.heads = model.heads;
  config.feed_forward = model.feed_forward;
  config.vocabulary = padded_vocabulary(model.vocabulary, question.tp);
  config.positions = std::max(model.positions, config.sequence);
  config.dropout = question.dropout;
  config.attention = question.attention == LayoutJob::Attention::kFlash
                         ? TransformerConfig::Attention::kFlash
                         : TransformerConfig::Attention::kEager;
  config.tied = model.tied;
  config.biases = model.biases;
  TrainingOptions& training = config.training;
  training.pytorch.major = 2;
  training.pytorch.minor = 0;
  training.optimizer = TrainingOptions::Optimizer::kNoOptimizer;
  training.weights = weights_of(question.precision);
  training.regions = TrainingOptions::Regions::kLossInForward;
}

// Learned positions stand for GPT's layers: layer norm, two products per feed-forward layer.
bool is_llama_like(const DecoderModel& model) { return model.gated || model.rms_norm; }

Result<ExecutionGraph> decoder_graph(const ShardQuestion& question, std::int64_t layers) {
  const DecoderModel& model = question.model;
  if (is_llama_like(model)) {
    LlamaConfig config;
    fill_config(config, question, layers);
    config.dropout = 0;
    config.kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
    config.fused_norms = true;
    return build_llama(config);
  }
  GptConfig config;
  fill_config(config, question, layers);
  config.activation = model.activation == DecoderModel::Activation::kRelu
                          ? GptConfig::Activation::kRelu
                          : GptConfig::Activation::kGeluTanh;
  config.fused_softmax = true;
  return build_gpt(config);
}

// `build_decoder_layers` knows neither learned positions nor dropout nor scores in memory.
bool is_built_by_kind(const ShardQuestion& question) {
  if (!has_plain_layers(question.model) || question.lora_rank > 0) return true;
  return question.fused_layers && is_llama_like(question.model) &&
         question.attention == LayoutJob::Attention::kFlash;
}

/// All layers of one kind, as this rank holds them.
DecoderLayersConfig layers_config(const ShardQuestion& question, const LayerKind& kind,
                                  std::int64_t layers) {
  const DecoderModel& model = question.model;
  const std::int64_t tp = question.tp;
  DecoderLayersConfig config;
  fill_config(config, question, layers);
  config.dropout = 0;
  config.vocabulary /= tp;
  config.mixer = static_cast<DecoderLayersConfig::Mixer>(kind.mixer);
  config.inner = static_cast<DecoderLayersConfig::FeedForward>(kind.inner);
  config.head_width = head_width_of(model);
  config.hidden = model.hidden;
  config.heads = model.heads / tp;
  config.kv_heads = std::max<std::int64_t>(1, kv_heads_of(model) / tp);
  config.feed_forward = std::max<std::int64_t>(1, model.feed_forward / tp);
  config.window = kind.slides ? model.window : 0;
  config.gated = model.gated;
  config.fused = question.fused_layers;
  config.latent = model.latent;
  config.states = model.states;
  if (model.state_layers > 0) {
    config.states.heads /= tp;
    config.states.groups = std::max<std::int64_t>(1, config.states.groups / tp);
  }
  if (model.sinks) config.attention = TransformerConfig::Attention::kEager;
  config.residual_parts = question.sequence_parallel ? tp : 1;
  const DecoderExperts& experts = model.experts;
  config.experts.experts = experts.experts;
  config.experts.top_k = experts.top_k;
  config.experts.hidden = expert_hidden_of(model) / question.etp;
  config.shared_width = experts.shared / tp;
  config.expert_input = expert_input_of(model);
  config.held = experts.experts / question.ep;
  const double tokens = static_cast<double>(question.tokens() * question.etp) /
                        static_cast<double>(config.residual_parts);
  config.rows = std::max<std::int64_t>(
      1, std::llround(tokens * static_cast<double>(experts.top_k) * question.expert_load));
  config.lora.rank = question.lora_rank;
  config.lora.on = question.lora_on_all ? LoraConfig::On::kAll : LoraConfig::On::kAttention;
  return config;
}

// Behind the builder: narrow products, recomputed scores, fused pointwise ops.
Result<ExecutionGraph> rewritten(Result<ExecutionGraph> graph, const ShardQuestion& question) {
  if (!graph) return graph;
  const bool fp8 = question.precision == Precision::kFp8;
  if (fp8 || question.precision == Precision::kFp4) {
    graph = rewrite_precision(*graph, {.precision = fp8 ? PrecisionOptions::Precision::kFp8
                                                        : PrecisionOptions::Precision::kFp4});
    if (!graph) return graph;
  }
  const bool selective = question.recompute == LayoutRecompute::kSelective &&
                         question.attention == LayoutJob::Attention::kEager;
  if (selective || question.model.sinks) {
    graph = rewrite_recomputation(*graph, {.what = RecomputeOptions::What::kSelective});
    if (!graph) return graph;
  }
  return rewrite_torchscript_fusion(*graph);
}

/// Sums over the ops of one graph.
struct GraphCosts {
  PassCosts forward, backward, embedding_forward, embedding_backward, loss_forward, loss_backward;
  double gradient_elements = 0;
  double activation_bytes = 0;
  double peak_extra_bytes = 0;  ///< activations and temporaries at the peak
  double late_extra_bytes = 0;  ///< the same while the first layer's backward pass runs
};

/// The collective that an op of the graph runs.
struct GraphCollective {
  CollectiveSum CollectiveSums::*kind = nullptr;
  double bytes = 0;
};

// By the ids of the nodes that hold them.
std::unordered_map<std::int64_t, GraphCollective> collectives_of(const ExecutionGraph& graph) {
  std::unordered_map<std::int64_t, GraphCollective> found;
  for (const Node& node : graph.nodes) {
    if (node.comm < 0) continue;
    const std::string kind = canonical_collective(graph.comm_records[node.comm].collective);
    GraphCollective one{.kind = kind == "all_gather"       ? &CollectiveSums::all_gather
                                : kind == "reduce_scatter" ? &CollectiveSums::reduce_scatter
                                                           : &CollectiveSums::all_reduce};
    for (const auto side : {graph.inputs(node), graph.outputs(node)}) {
      for_each_tensor(graph, side, [&](const Tensor& tensor) {
        one.bytes = std::max(one.bytes, static_cast<double>(tensor.bytes()));
      });
    }
    found[node.id] = one;
    for (std::int32_t above = node.parent; above >= 0; above = graph.node(above).parent) {
      found.emplace(graph.node(above).id, one);
    }
  }
  return found;
}

void add_collective(const GraphCollective& collective, double us, PassCosts& to) {
  CollectiveSum& sum = to.by_kind.*collective.kind;
  sum.count += 1;
  sum.bytes += collective.bytes;
  sum.us += us;
}

bool multiplies(KernelFamily family) {
  return family == KernelFamily::kGemm || family == KernelFamily::kGroupedGemm ||
         family == KernelFamily::kExperts;
}

void add_op(const PredictedOp& op,
            const std::unordered_map<std::int64_t, GraphCollective>& collectives, PassCosts& to) {
  to.host_us += op.host_us;
  ++to.ops;
  for (const PredictedKernel& kernel : op.kernels) {
    if (kernel.family == KernelFamily::kCollective) {
      to.comm_us += kernel.price.time.count();
      ++to.collectives;
      add_collective(collectives.at(op.id), kernel.price.time.count(), to);
      continue;
    }
    to.kernel_us += kernel.price.time.count();
    if (multiplies(kernel.family)) to.product_us += kernel.price.time.count();
    if (kernel.family == KernelFamily::kAttention) to.attention_us += kernel.price.time.count();
    to.low_us += kernel.price.low.count();
    to.high_us += kernel.price.high.count();
  }
}

bool is_lookup_gradient(std::string_view op) {
  return op.find("Embedding") != std::string_view::npos;
}

// Behind the last lookup, a collective that sums what the ranks looked up belongs to it.
std::size_t end_of_lookups(const Prediction& step) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    if (is_row_lookup(step.ops[i].name)) end = i + 1;
  }
  constexpr std::size_t kOpsOfMaskedLookup = 4;  // mask, reshape, sum over the ranks
  for (std::size_t i = end; i < std::min(step.ops.size(), end + kOpsOfMaskedLookup); ++i) {
    for (const PredictedKernel& kernel : step.ops[i].kernels) {
      if (kernel.family == KernelFamily::kCollective) return i + 1;
    }
  }
  return end;
}

bool multiplies(const PredictedOp& op) {
  return std::ranges::any_of(op.kernels, [](const PredictedKernel& kernel) {
    return kernel.family == KernelFamily::kGemm;
  });
}

// The loss lies between the last product of the forward pass and the first of the backward pass.
void add_passes(const ExecutionGraph& graph, const Prediction& step, GraphCosts& sums) {
  const auto collectives = collectives_of(graph);
  const std::size_t lookups = end_of_lookups(step), ops = step.ops.size();
  const auto is_backward = [&](std::size_t i) {
    return step.phases[step.ops[i].phase].label == "## backward ##";
  };
  std::size_t last_product = 0, first_gradient = ops;
  for (std::size_t i = 0; i < ops; ++i) {
    if (!multiplies(step.ops[i])) continue;
    if (!is_backward(i)) last_product = i;
    if (is_backward(i)) first_gradient = std::min(first_gradient, i);
  }
  for (std::size_t i = 0; i < ops; ++i) {
    const PredictedOp& op = step.ops[i];
    if (is_backward(i)) {
      add_op(op, collectives,
             is_lookup_gradient(op.name) ? sums.embedding_backward
             : i < first_gradient        ? sums.loss_backward
                                         : sums.backward);
    } else {
      add_op(op, collectives,
             i < lookups        ? sums.embedding_forward
             : i > last_product ? sums.loss_forward
                                : sums.forward);
    }
  }
}

double extra_bytes(const MemoryByPurpose& bytes) {
  return at(bytes, MemoryPurpose::kActivations) + at(bytes, MemoryPurpose::kTemporaries);
}

// The gradients of looked-up words come last, when no layer holds activations any more.
std::int32_t first_lookup_gradient(const ExecutionGraph& graph, std::int32_t from) {
  for (std::int32_t i = from; i < std::ssize(graph.nodes); ++i) {
    if (is_lookup_gradient(graph.name(graph.node(i)))) return i;
  }
  return static_cast<std::int32_t>(graph.nodes.size());
}

void add_memory(const ExecutionGraph& graph, const ShardQuestion& question, GraphCosts& sums) {
  const DType weights = weights_of(question.precision);
  const MemoryPlan plan = memory_plan(graph);
  const std::vector<std::int64_t> bytes = storage_bytes(plan, graph);
  const GraphMemory memory = graph_memory(plan, bytes);
  sums.activation_bytes = memory.activation_bytes;
  const std::vector<MemoryByPurpose> curve = memory_curve(plan, bytes);
  const StorageLifetimes& lifetimes = plan.lifetimes;
  // Of the backward pass of two layers and a head, the last two fifths are the first layer's alone.
  const std::int32_t late =
      lifetimes.step.end - (lifetimes.step.end - lifetimes.forward_end) * 2 / 5;
  const std::int32_t lookups = first_lookup_gradient(graph, lifetimes.forward_end);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    sums.peak_extra_bytes = std::max(sums.peak_extra_bytes, extra_bytes(curve[i]));
    if (plan.events[i].node < late || plan.events[i].node >= lookups) continue;
    sums.late_extra_bytes = std::max(sums.late_extra_bytes, extra_bytes(curve[i]));
  }
  for (std::size_t i = 0; i < lifetimes.storages.size(); ++i) {
    if (lifetimes.storages[i].purpose != MemoryPurpose::kGradients) continue;
    sums.gradient_elements += static_cast<double>(bytes[i]) / size_in_bytes(weights);
  }
}

Result<GraphCosts> graph_costs(const ShardQuestion& question, const Result<ExecutionGraph>& graph,
                               const Predictor& predictor, std::string_view gpu, AskOptions options,
                               std::vector<std::string>& warnings) {
  if (!graph) return Unexpected{graph.error()};
  options.keep_ops = true;
  const auto step = predictor.predict(*graph, gpu, options);
  if (!step) return Unexpected{step.error()};
  GraphCosts sums;
  add_passes(*graph, *step, sums);
  add_memory(*graph, question, sums);
  warnings = step->warnings;
  return sums;
}

// Between two layers: hidden numbers per token, of which sequence parallelism leaves each rank a
// part.
double boundary_bytes(const ShardQuestion& question) {
  const double tokens = static_cast<double>(question.tokens());
  const double parts = question.sequence_parallel ? static_cast<double>(question.tp) : 1;
  return tokens * static_cast<double>(question.model.hidden) *
         size_in_bytes(weights_of(question.precision)) / parts;
}

void recompute_layer(const ShardQuestion& question, ShardCosts& costs) {
  PartCosts& layer = costs.layer;
  layer.again = layer.forward;
  layer.backward = layer.backward + layer.again;
  costs.layer_extra_bytes += layer.kept_bytes;
  layer.kept_bytes = boundary_bytes(question);
}

// Results of every second product with a weight and of attention, on a rank.
double kept_by_op(const ShardQuestion& question) {
  const DecoderModel& model = question.model;
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const double width = real(head_width_of(model)), queries = real(model.heads) * width;
  const DecoderExperts& experts = model.experts;
  const double inner = experts.experts > 0
                           ? real(experts.top_k * expert_hidden_of(model) + experts.shared)
                           : real(model.feed_forward);
  const double split =
      queries + 2 * real(kv_heads_of(model)) * width + (model.gated ? 2 : 1) * inner;
  const double parts = question.sequence_parallel ? real(question.tp) : 1;
  const double numbers = (split / 2 + queries) / real(question.tp) + real(model.hidden) / parts;
  return real(question.tokens()) * numbers * size_in_bytes(weights_of(question.precision));
}

// torchtitan's policy: results of scatters over tensor-parallel ranks are kept, too.
void recompute_by_op(const ShardQuestion& question, ShardCosts& costs) {
  PartCosts& layer = costs.layer;
  PassCosts& again = layer.again = layer.forward;
  const double whole = again.kernel_us;
  again.product_us /= 2;
  again.kernel_us -= again.product_us + again.attention_us;
  again.attention_us = 0;
  again.low_us *= whole > 0 ? again.kernel_us / whole : 0;
  again.high_us *= whole > 0 ? again.kernel_us / whole : 0;
  again.comm_us -= again.by_kind.reduce_scatter.us;
  again.by_kind.reduce_scatter = {};
  layer.backward = layer.backward + again;
  const double kept = std::min(layer.kept_bytes, boundary_bytes(question) + kept_by_op(question));
  costs.layer_extra_bytes += layer.kept_bytes - kept;
  layer.kept_bytes = kept;
}

}  // namespace

namespace {

// What questions about plain layers without context parallelism leave at its default.
std::string key_of_kinds(const ShardQuestion& of) {
  const DecoderModel& model = of.model;
  std::string key = fmt::format("{} {} {}", of.cp, of.context_balanced, model.next_tokens);
  if (!is_built_by_kind(of)) return key;
  const DecoderExperts& e = model.experts;
  const LatentAttentionSizes& l = model.latent;
  const StateSpaceSizes& s = model.states;
  const std::int64_t sizes[] = {model.layers,
                                model.head_width,
                                e.experts,
                                e.top_k,
                                e.hidden,
                                e.shared,
                                e.input,
                                e.dense_layers,
                                l.query_rank,
                                l.key_value_rank,
                                l.plain_width,
                                l.rotary_width,
                                l.value_width,
                                model.state_layers,
                                model.attention_layers,
                                s.heads,
                                s.head_width,
                                s.groups,
                                s.state,
                                model.window,
                                model.windowed_layers,
                                model.sinks ? 1 : 0,
                                of.fused_layers ? 1 : 0,
                                of.ep,
                                of.etp,
                                of.lora_rank,
                                of.lora_on_all ? 1 : 0};
  return key + fmt::format(" | {} | {}", fmt::join(sizes, " "), of.expert_load);
}

}  // namespace

std::string ShardQuestion::key() const {
  return fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} | {} {} {} {} {} {} {} {} {}", model.hidden, model.heads,
      model.kv_heads, model.feed_forward, model.vocabulary, model.positions, model.gated,
      model.tied, model.biases, model.rms_norm, static_cast<int>(model.activation), 0, sequence,
      micro_batch, tp, sequence_parallel, static_cast<int>(precision), static_cast<int>(attention),
      dropout, static_cast<int>(recompute), key_of_kinds(*this));
}

CollectiveSums& CollectiveSums::operator+=(const CollectiveSums& other) {
  for (const auto kind : kKindsOfCollectives) {
    (this->*kind).count += (other.*kind).count;
    (this->*kind).bytes += (other.*kind).bytes;
    (this->*kind).us += (other.*kind).us;
  }
  return *this;
}

CollectiveSums& CollectiveSums::operator*=(double times) {
  for (const auto kind : kKindsOfCollectives) {
    (this->*kind).count *= times;
    (this->*kind).bytes *= times;
    (this->*kind).us *= times;
  }
  return *this;
}

PassCosts operator+(PassCosts a, const PassCosts& b) {
  a.kernel_us += b.kernel_us;
  a.attention_us += b.attention_us;
  a.product_us += b.product_us;
  a.state_us += b.state_us;
  a.low_us += b.low_us;
  a.high_us += b.high_us;
  a.comm_us += b.comm_us;
  a.host_us += b.host_us;
  a.ops += b.ops;
  a.collectives += b.collectives;
  a.by_kind += b.by_kind;
  return a;
}

PassCosts operator*(double count, PassCosts a) {
  a.kernel_us *= count;
  a.attention_us *= count;
  a.product_us *= count;
  a.state_us *= count;
  a.low_us *= count;
  a.high_us *= count;
  a.comm_us *= count;
  a.host_us *= count;
  a.ops = static_cast<std::int64_t>(count * static_cast<double>(a.ops));
  a.collectives = static_cast<std::int64_t>(count * static_cast<double>(a.collectives));
  a.by_kind *= count;
  return a;
}

PassCosts operator-(PassCosts a, const PassCosts& b) { return a + -1.0 * b; }

std::int64_t padded_vocabulary(std::int64_t vocabulary, std::int64_t tp) {
  const std::int64_t multiple = 128 * tp;
  return (vocabulary + multiple - 1) / multiple * multiple;
}

Result<ExecutionGraph> shard_graph(const ShardQuestion& question, std::int64_t layers) {
  auto graph = decoder_graph(question, layers);
  if (!graph) return graph;
  if (question.tp > 1) {
    graph = make_tensor_parallel(
        *graph, {.ranks = question.tp, .sequence_parallel = question.sequence_parallel});
    if (!graph) return graph;
  }
  return rewritten(std::move(graph), question);
}

namespace {

/// The graphs of one layer and of two of a kind.
using GraphOf = std::function<Result<ExecutionGraph>(std::int64_t layers)>;

// Tokens of other ranks' parts of the sequence.
void add_other_tokens(const ShardQuestion& question, PassCosts& pass) {
  if (question.cp == 1) return;
  const double cp = static_cast<double>(question.cp);
  const double more = (question.context_balanced ? cp : 2 * cp - 1) - 1;
  const double share = pass.kernel_us > 0 ? more * pass.attention_us / pass.kernel_us : 0;
  pass.low_us *= 1 + share;
  pass.high_us *= 1 + share;
  pass.kernel_us += more * pass.attention_us;
  pass.attention_us *= 1 + more;
}

// Cross entropy keeps the log-probabilities of all tokens in fp32; where a model of PyTorch's own
// layers shifts its labels, the last token of a sequence has none.
double kept_logits(const ShardQuestion& question) {
  const std::int64_t tokens =
      question.tokens() - (is_built_by_kind(question) ? 0 : question.micro_batch);
  return 4 * static_cast<double>(tokens) *
         static_cast<double>(padded_vocabulary(question.model.vocabulary, question.tp) /
                             question.tp);
}

Result<ShardCosts> costs_of_graphs(const ShardQuestion& question, const GraphOf& graph_of,
                                   bool sees_all, const Predictor& predictor, std::string_view gpu,
                                   const AskOptions& options) {
  ShardCosts costs;
  const auto one = graph_costs(question, graph_of(1), predictor, gpu, options, costs.warnings);
  if (!one) return Unexpected{one.error()};
  const auto two = graph_costs(question, graph_of(2), predictor, gpu, options, costs.warnings);
  if (!two) return Unexpected{two.error()};

  PartCosts &layer = costs.layer, &head = costs.head, &embedding = costs.embedding;
  layer.forward = two->forward - one->forward;
  layer.backward = two->backward - one->backward;
  layer.parameters = two->gradient_elements - one->gradient_elements;
  layer.kept_bytes = two->activation_bytes - one->activation_bytes;
  costs.loss.forward = one->loss_forward;
  costs.loss.backward = one->loss_backward;
  embedding.forward = one->embedding_forward;
  embedding.backward = one->embedding_backward;
  const DecoderModel& model = question.model;
  const double words = static_cast<double>(padded_vocabulary(model.vocabulary, question.tp)) /
                       static_cast<double>(question.tp) * static_cast<double>(model.hidden);
  embedding.parameters = words + static_cast<double>(model.positions * model.hidden);
  embedding.kept_bytes = boundary_bytes(question);
  head.forward = one->forward - layer.forward;
  head.backward = one->backward - layer.backward;
  head.parameters = one->gradient_elements - layer.parameters - embedding.parameters;
  const double kept = layer.kept_bytes + embedding.kept_bytes;
  head.kept_bytes = std::max(0.0, one->activation_bytes - kept);
  costs.logit_bytes = std::min(head.kept_bytes, kept_logits(question));
  costs.head_extra_bytes = std::max(0.0, one->peak_extra_bytes - kept - head.kept_bytes);
  costs.layer_extra_bytes =
      std::max(0.0, two->late_extra_bytes - layer.kept_bytes - embedding.kept_bytes);
  costs.boundary_bytes = boundary_bytes(question);
  if (sees_all) {
    add_other_tokens(question, layer.forward);
    add_other_tokens(question, layer.backward);
  }
  if (question.recompute == LayoutRecompute::kFull) recompute_layer(question, costs);
  if (question.recompute == LayoutRecompute::kOp) recompute_by_op(question, costs);
  return costs;
}

void add_share(PartCosts& sum, double share, const PartCosts& of) {
  sum.forward = sum.forward + share * of.forward;
  sum.backward = sum.backward + share * of.backward;
  sum.again = sum.again + share * of.again;
  sum.parameters += share * of.parameters;
  sum.experts += share * of.experts;
  sum.frozen += share * of.frozen;
  sum.kept_bytes += share * of.kept_bytes;
}

// Weights of a layer that adapters leave as they are, on one rank.
double frozen_of(const ShardQuestion& question, const LayerKind& kind) {
  if (question.lora_rank == 0) return 0;
  const LayerParameters whole = layer_parameters(question.model, kind);
  return whole.dense / static_cast<double>(question.tp) +
         whole.experts / static_cast<double>(question.ep * question.etp);
}

double experts_of(const ShardQuestion& question, const LayerKind& kind) {
  if (question.lora_rank > 0) return 0;
  return layer_parameters(question.model, kind).experts /
         static_cast<double>(question.ep * question.etp);
}

// What learns to predict tokens beyond the next stands at the end: a layer, a product of two
// residual streams, the output layer and a loss once more each.
void add_next_tokens(const DecoderModel& model, const PartCosts& layer, ShardCosts& costs) {
  const auto times = static_cast<double>(model.next_tokens);
  if (times == 0) return;
  const PartCosts head = costs.head, loss = costs.loss;
  add_share(costs.head, times, layer);
  add_share(costs.head, times, head);
  costs.head.parameters -= times * head.parameters;  // shared
  costs.head.frozen -= times * head.frozen;
  costs.logit_bytes *= 1 + times;
  add_share(costs.loss, times, loss);
}

// The mean over the layers of all kinds.
Result<ShardCosts> costs_by_kind(const ShardQuestion& question, const Predictor& predictor,
                                 std::string_view gpu, const AskOptions& options) {
  ShardCosts mean;
  PartCosts last;
  const auto layers = static_cast<double>(question.model.layers);
  bool first = true;
  for (const LayerKind& kind : layer_kinds(question.model)) {
    const GraphOf graph_of = [&](std::int64_t count) {
      return rewritten(build_decoder_layers(layers_config(question, kind, count)), question);
    };
    const bool sees_all = kind.attends() && !kind.slides;
    auto costs = costs_of_graphs(question, graph_of, sees_all, predictor, gpu, options);
    if (!costs) return costs;
    costs->layer.experts = experts_of(question, kind);
    costs->layer.frozen = frozen_of(question, kind);
    if (kind.mixer == LayerKind::Mixer::kStateSpace) {
      for (PassCosts* pass : {&costs->layer.forward, &costs->layer.backward, &costs->layer.again}) {
        pass->state_us = pass->kernel_us;
      }
    }
    last = costs->layer;
    const double share = static_cast<double>(kind.layers) / layers;
    if (first) {
      mean = *costs;
      mean.layer = {};
    }
    first = false;
    add_share(mean.layer, share, costs->layer);
    mean.layer_extra_bytes = std::max(mean.layer_extra_bytes, costs->layer_extra_bytes);
    mean.attending += sees_all ? share : 0;
    const bool experts = kind.inner == LayerKind::Inner::kExperts;
    mean.expert_layers += experts ? share : 0;
    if (kind.mixer != LayerKind::Mixer::kNone) mean.tensor_parts += share;
    const bool split =
        kind.inner == LayerKind::Inner::kDense || (experts && question.model.experts.shared > 0);
    if (split) mean.tensor_parts += share;
  }
  if (question.lora_rank > 0) {
    mean.embedding.frozen = std::exchange(mean.embedding.parameters, 0);
    mean.head.frozen = question.model.tied ? 0 : mean.embedding.frozen;
    mean.head.parameters = 0;
  }
  add_next_tokens(question.model, last, mean);
  return mean;
}

}  // namespace

Result<ShardCosts> shard_costs(const ShardQuestion& question, const Predictor& predictor,
                               std::string_view gpu, const AskOptions& options) {
  if (is_built_by_kind(question)) return costs_by_kind(question, predictor, gpu, options);
  auto costs = costs_of_graphs(
      question, [&](std::int64_t layers) { return shard_graph(question, layers); }, true, predictor,
      gpu, options);
  if (!costs) return costs;
  costs->attending = 1;
  add_next_tokens(question.model, PartCosts(costs->layer), *costs);
  return costs;
}

}  // namespace perfmodel
