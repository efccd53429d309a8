#include "shard_costs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
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
#include "pinned_blocks.hpp"
#include "program/data_parallel_graph.hpp"
#include "recomputed_layer.hpp"
#include "record/match_collectives.hpp"

namespace perfmodel {
namespace {

using Precision = LayoutJob::Precision;

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

void set_optimizer(TrainingOptions::Optimizer optimizer, TransformerConfig& config) {
  config.training.optimizer = optimizer;
  config.training.implementation = TrainingOptions::Implementation::kFused;
}

Result<ExecutionGraph> decoder_graph(
    const ShardQuestion& question, std::int64_t layers,
    TrainingOptions::Optimizer optimizer = TrainingOptions::Optimizer::kNoOptimizer) {
  const DecoderModel& model = question.model;
  if (is_llama_like(model)) {
    LlamaConfig config;
    fill_config(config, question, layers);
    set_optimizer(optimizer, config);
    config.dropout = 0;
    config.kv_heads = kv_heads_of(model);
    config.fused_norms = true;
    return build_llama(config);
  }
  GptConfig config;
  fill_config(config, question, layers);
  set_optimizer(optimizer, config);
  config.activation = model.activation == DecoderModel::Activation::kRelu
                          ? GptConfig::Activation::kRelu
                          : GptConfig::Activation::kGeluTanh;
  config.fused_softmax = !question.plain;
  return build_gpt(config);
}

// The graph itself drops scores of eager attention and makes them again.
bool recomputes_scores(const ShardQuestion& question) {
  const LayoutRecompute& recompute = question.recompute;
  const bool asked = recompute == LayoutRecompute::kSelective ||
                     (recompute.modules & LayoutRecompute::kCoreAttention) != 0;
  return asked && question.attention == LayoutJob::Attention::kEager;
}

/// All layers of one kind, as this rank holds them.
DecoderLayersConfig layers_config(const ShardQuestion& question, const LayerKind& kind,
                                  std::int64_t layers) {
  const DecoderModel& model = question.model;
  const std::int64_t tp = question.tp;
  DecoderLayersConfig config;
  fill_config(config, question, layers);
  take_sizes(model, tp, config);
  config.vocabulary /= tp;
  config.kinds = {kind};
  config.sinks = model.sinks && !question.fused_sinks;
  config.fused = question.fused_layers;
  config.residual_parts = question.sequence_parallel ? tp : 1;
  const DecoderExperts& experts = model.experts;
  config.experts.hidden = expert_hidden_of(model) / question.etp;
  config.held = experts.experts / question.ep;
  const double tokens = static_cast<double>(question.tokens() * question.etp) /
                        static_cast<double>(config.residual_parts);
  config.rows = std::max<std::int64_t>(
      1, std::llround(tokens * static_cast<double>(experts.top_k) * question.expert_load));
  config.lora.rank = question.lora_rank;
  config.lora.on = question.lora_on_all ? LoraConfig::On::kAll : LoraConfig::On::kAttention;
  return config;
}

// Rewrites the built graph: narrow products, recomputed scores, fused pointwise ops.
Result<ExecutionGraph> rewritten(Result<ExecutionGraph> graph, const ShardQuestion& question,
                                 bool compiled) {
  if (!graph) return graph;
  const bool fp8 = question.precision == Precision::kFp8;
  if (fp8 || question.precision == Precision::kFp4) {
    graph = rewrite_precision(*graph, {.precision = fp8 ? PrecisionOptions::Precision::kFp8
                                                        : PrecisionOptions::Precision::kFp4});
    if (!graph) return graph;
  }
  if (recomputes_scores(question) || (question.model.sinks && !question.fused_sinks)) {
    graph = rewrite_recomputation(*graph, {.what = RecomputeOptions::What::kSelective});
    if (!graph) return graph;
  }
  if (compiled) return rewrite_compiled(*graph, {.extent = CompileExtent::kModel});
  return question.fused_pointwise ? rewrite_torchscript_fusion(*graph) : graph;
}

bool holds_update(const ShardQuestion& question) {
  const bool is_narrow =
      question.precision == Precision::kFp8 || question.precision == Precision::kFp4;
  return question.plain && question.tp == 1 && !is_narrow && !recomputes_scores(question) &&
         !is_built_by_kind(question);
}

// The same with the optimizer, fp32 copies of half weights, and buckets.
Result<ExecutionGraph> whole_step(const ShardQuestion& question, std::int64_t layers) {
  auto graph = decoder_graph(question, layers, TrainingOptions::Optimizer::kAdamW);
  if (graph && question.precision != Precision::kFp32) {
    const bool bf16 = question.precision == Precision::kBf16;
    graph = rewrite_precision(*graph, {.precision = bf16 ? PrecisionOptions::Precision::kBf16
                                                         : PrecisionOptions::Precision::kFp16,
                                       .master_weights = true});
  }
  if (!graph || !question.copies_gradients) return graph;
  PERFMODEL_TRY(copied, make_data_parallel_graph(*graph, {.world = 2}));
  return std::move(copied->graph);
}

/// Sums over the ops of one graph.
struct GraphCosts {
  PassCosts update, forward, backward, embedding_forward, embedding_backward, loss_forward,
      loss_backward;
  double gradient_elements = 0;
  double activation_bytes = 0;
  /// Forward pass of the first layer: up to the product after attention, and from there to the
  /// first product of the experts.
  double attention_host_us = 0, router_host_us = 0;
  double pinned_bytes = 0;      ///< the same in pinned blocks, one per storage
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
      if (!collectives.contains(op.id)) continue;
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
  // torch.compile names its kernels after the ops in them.
  return op.find("Embedding") != std::string_view::npos ||
         op.find("embedding_dense_backward") != std::string_view::npos;
}

// A collective after the last lookup that sums the looked-up rows of the ranks belongs to the
// lookups.
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

// The loss is between the last product of the forward pass and the first of the backward pass.
void add_passes(const ExecutionGraph& graph, const Prediction& step, bool tensor_parallel,
                GraphCosts& sums) {
  // Buckets of DDP are summed elsewhere.
  const auto collectives =
      tensor_parallel ? collectives_of(graph) : decltype(collectives_of(graph)){};
  const std::size_t lookups = end_of_lookups(step), ops = step.ops.size();
  const auto is_backward = [&](std::size_t i) {
    return step.phases[step.ops[i].phase].label == "## backward ##";
  };
  std::size_t last_product = 0, first_gradient = ops, end_of_gradients = ops;
  for (std::size_t i = 0; i < ops; ++i) {
    if (is_backward(i)) end_of_gradients = i + 1;
    if (!multiplies(step.ops[i])) continue;
    if (!is_backward(i)) last_product = i;
    if (is_backward(i)) first_gradient = std::min(first_gradient, i);
  }
  for (std::size_t i = 0; i < ops; ++i) {
    const PredictedOp& op = step.ops[i];
    if (i >= end_of_gradients) {
      add_op(op, collectives, sums.update);
    } else if (is_backward(i)) {
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

bool has_family(const PredictedOp& op, KernelFamily family) {
  return std::ranges::find(op.kernels, family, &PredictedKernel::family) != op.kernels.end();
}

void add_captured(const Prediction& step, GraphCosts& sums) {
  enum class Part : std::uint8_t { kAttention, kProduct, kRouter } part = Part::kAttention;
  double router_us = 0;
  for (std::size_t i = end_of_lookups(step); i < step.ops.size(); ++i) {
    const PredictedOp& op = step.ops[i];
    if (step.phases[op.phase].label == "## backward ##") return;
    if (part == Part::kRouter) {
      const bool experts =
          has_family(op, KernelFamily::kGroupedGemm) || has_family(op, KernelFamily::kExperts);
      if (experts) sums.router_host_us = router_us;
      if (experts) return;
      router_us += op.host_us;
      continue;
    }
    sums.attention_host_us += op.host_us;
    if (has_family(op, KernelFamily::kAttention)) part = Part::kProduct;
    if (part == Part::kProduct && multiplies(op)) part = Part::kRouter;
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
  // In the backward pass of two layers and a head, the last two fifths are the first layer's alone.
  const std::int32_t late =
      lifetimes.step.end - (lifetimes.step.end - lifetimes.forward_end) * 2 / 5;
  const std::int32_t lookups = first_lookup_gradient(graph, lifetimes.forward_end);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    sums.peak_extra_bytes = std::max(sums.peak_extra_bytes, extra_bytes(curve[i]));
    if (plan.events[i].node < late || plan.events[i].node >= lookups) continue;
    sums.late_extra_bytes = std::max(sums.late_extra_bytes, extra_bytes(curve[i]));
  }
  for (std::size_t i = 0; i < lifetimes.storages.size(); ++i) {
    const MemoryPurpose purpose = lifetimes.storages[i].purpose;
    if (purpose == MemoryPurpose::kActivations) {
      sums.pinned_bytes += pinned_block_bytes(static_cast<double>(bytes[i]));
    }
    if (purpose != MemoryPurpose::kGradients) continue;
    sums.gradient_elements += static_cast<double>(bytes[i]) / size_in_bytes(weights);
  }
}

enum class GraphForm { kEager, kCompiled, kWholeStep };
/// The graphs of one layer and of two of a kind.
using GraphOf = std::function<Result<ExecutionGraph>(std::int64_t layers, GraphForm form)>;

Result<GraphCosts> graph_costs(const ShardQuestion& question, const GraphOf& graph_of,
                               std::int64_t layers, const Predictor& predictor,
                               std::string_view gpu, AskOptions options) {
  PERFMODEL_TRY(graph,
                graph_of(layers, question.compiled ? GraphForm::kCompiled : GraphForm::kEager));
  std::optional<ExecutionGraph> whole;
  if (holds_update(question)) {
    PERFMODEL_TRY(made, graph_of(layers, GraphForm::kWholeStep));
    whole = std::move(*made);
  }
  const ExecutionGraph& timed = whole ? *whole : *graph;
  options.keep_ops = options.times_only = true;
  PERFMODEL_TRY(step, predictor.predict(timed, gpu, options));
  GraphCosts sums;
  add_passes(timed, *step, question.tp > 1, sums);
  add_captured(*step, sums);
  add_memory(*graph, question, sums);
  return sums;
}

// Both passes have the same captured share of the host's time.
void take_captured(const GraphCosts& one, PartCosts& layer) {
  const double whole = layer.forward.host_us;
  if (whole <= 0) return;
  for (PassCosts* pass : {&layer.forward, &layer.backward}) {
    const double share = pass->host_us / whole;
    pass->attention_host_us = share * std::min(whole, one.attention_host_us);
    pass->router_host_us =
        std::min(share * one.router_host_us, pass->host_us - pass->attention_host_us);
  }
}

// Between two layers: hidden numbers per token, of which sequence parallelism leaves each rank a
// part.
double boundary_bytes(const ShardQuestion& question) {
  const double tokens = static_cast<double>(question.tokens());
  const double parts = question.sequence_parallel ? static_cast<double>(question.tp) : 1;
  return tokens * static_cast<double>(question.model.hidden) * weight_width(question.precision) /
         parts;
}

}  // namespace

namespace {

// The fields that questions about plain layers without context parallelism leave at their defaults.
std::string key_of_kinds(const ShardQuestion& of) {
  const DecoderModel& model = of.model;
  std::string key = fmt::format("{} {} {} {} {} {}", of.cp, of.context_balanced, model.next_tokens,
                                of.fused_pointwise, of.plain, of.copies_gradients);
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
                                model.delta_states ? 1 : 0,
                                model.gated_heads ? 1 : 0,
                                model.chunked ? 1 : 0,
                                of.fused_sinks ? 1 : 0,
                                of.fused_layers ? 1 : 0,
                                of.ep,
                                of.etp,
                                of.lora_rank,
                                of.lora_on_all ? 1 : 0};
  return key + fmt::format(" | {} | {}", fmt::join(sizes, " "), of.expert_load);
}

}  // namespace

std::string key_of(const ShardQuestion& of) {
  const DecoderModel& model = of.model;
  return fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {} | {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
      model.hidden, model.heads, model.kv_heads, model.feed_forward, model.vocabulary,
      model.positions, model.gated, model.tied, model.biases, model.rms_norm,
      static_cast<int>(model.activation), model.layers, of.sequence, of.micro_batch, of.tp,
      of.sequence_parallel, static_cast<int>(of.precision), static_cast<int>(of.attention),
      of.dropout, static_cast<int>(of.recompute.what), of.recompute.count, of.recompute.modules,
      of.chunks, of.compiled, of.fp8_activations, key_of_kinds(of));
}

std::int64_t padded_vocabulary(std::int64_t vocabulary, std::int64_t tp) {
  const std::int64_t multiple = 128 * tp;
  return (vocabulary + multiple - 1) / multiple * multiple;
}

Result<ExecutionGraph> shard_graph(const ShardQuestion& question, std::int64_t layers,
                                   bool compiled) {
  PERFMODEL_TRY(graph, decoder_graph(question, layers));
  if (question.tp > 1) {
    graph = make_tensor_parallel(
        *graph, {.ranks = question.tp, .sequence_parallel = question.sequence_parallel});
    if (!graph) return graph;
  }
  return rewritten(std::move(graph), question, compiled);
}

namespace {

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

// Extra bytes of one layer's backward pass. The region of a compiled program holds all gradients
// until its end; layers that are compiled one by one do not, so eager graphs say how much they
// take.
Result<double> layer_extra_bytes(const ShardQuestion& question, const GraphOf& graph_of,
                                 GraphCosts one, GraphCosts two) {
  if (question.compiled) {
    for (auto& [layers, sums] : {std::pair{1, &one}, std::pair{2, &two}}) {
      PERFMODEL_TRY(eager, graph_of(layers, GraphForm::kEager));
      *sums = {};
      add_memory(*eager, question, *sums);
    }
  }
  return two.late_extra_bytes - (two.activation_bytes - one.activation_bytes);
}

// Transformer Engine keeps inputs of products in fp8, a byte less each: results of the norms (of
// latent attention's, too) and of the activation. Attention keeps its result for itself, which is
// one more there.
void keep_in_fp8(const ShardQuestion& question, const LayerKind& kind, PartCosts& layer) {
  const DecoderModel& model = question.model;
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  const double tp = real(question.tp), parts = question.sequence_parallel ? tp : 1;
  const double hidden = real(model.hidden) / parts;
  const DecoderExperts& experts = model.experts;
  const LatentAttentionSizes& latent = model.latent;
  const bool has_latent = kind.mixer == LayerKind::Mixer::kLatent;
  const std::int64_t width = has_latent ? latent.value_width : head_width_of(model);
  double less = hidden - real(model.heads * width) / tp;
  if (has_latent) less += real(latent.query_rank + latent.key_value_rank);
  if (kind.inner == LayerKind::Inner::kDense) less += hidden + real(model.feed_forward) / tp;
  if (kind.inner == LayerKind::Inner::kExperts) {
    const double inner = real(expert_hidden_of(model)) / real(question.etp);
    less +=
        question.expert_load * real(experts.top_k) * (real(expert_input_of(model)) + inner) / parts;
    if (experts.shared > 0) less += hidden + real(experts.shared) / tp;
  }
  less = std::min(layer.kept_bytes, less * real(question.tokens()));
  layer.pinned_bytes *= layer.kept_bytes > 0 ? 1 - less / layer.kept_bytes : 1;
  layer.kept_bytes -= less;
}

Result<ShardCosts> costs_of_graphs(const ShardQuestion& question, const GraphOf& graph_of,
                                   bool sees_all, const Predictor& predictor, std::string_view gpu,
                                   const AskOptions& options) {
  ShardCosts costs;
  PERFMODEL_TRY(one, graph_costs(question, graph_of, 1, predictor, gpu, options));
  PERFMODEL_TRY(two, graph_costs(question, graph_of, 2, predictor, gpu, options));

  PartCosts &layer = costs.layer, &head = costs.head, &embedding = costs.embedding;
  layer.forward = two->forward - one->forward;
  layer.backward = two->backward - one->backward;
  take_captured(*one, layer);
  costs.layer_update = two->update - one->update;
  costs.other_update = one->update - costs.layer_update;
  layer.parameters = two->gradient_elements - one->gradient_elements;
  layer.kept_bytes = two->activation_bytes - one->activation_bytes;
  layer.pinned_bytes = two->pinned_bytes - one->pinned_bytes;
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
  PERFMODEL_TRY(extra, layer_extra_bytes(question, graph_of, *one, *two));
  costs.layer_extra_bytes = std::max(0.0, *extra - embedding.kept_bytes);
  costs.boundary_bytes = boundary_bytes(question);
  if (sees_all) {
    add_other_tokens(question, layer.forward);
    add_other_tokens(question, layer.backward);
  }
  return costs;
}

// Leaves out everything that the graphs of a kind do not depend on, so that questions share them.
ShardQuestion question_of_graphs(ShardQuestion question, const LayerKind& kind) {
  if (!recomputes_scores(question)) question.recompute = LayoutRecompute::kNone;
  question.chunks = 1;
  question.fp8_activations = false;
  question.model.next_tokens = 0;
  if (kind.inner == LayerKind::Inner::kExperts) return question;
  question.ep = question.etp = 1;
  question.expert_load = 1;
  return question;
}

/// Costs of the layers of a kind with recomputation.
Result<ShardCosts> costs_of_kind(const ShardQuestion& question, const LayerKind& kind,
                                 const GraphOf& graph_of, const Predictor& predictor,
                                 std::string_view gpu, const AskOptions& options,
                                 const PricedOnce& once) {
  const bool sees_all = kind.attends() && !kind.slides;
  const ShardQuestion asked = question_of_graphs(question, kind);
  const auto price = [&] {
    return costs_of_graphs(asked, graph_of, sees_all, predictor, gpu, options);
  };
  const auto finish = [&](ShardCosts costs) {
    if (question.fp8_activations) keep_in_fp8(question, kind, costs.layer);
    recompute_layer(question, kind, costs);
    return costs;
  };
  if (!once) return price().transform(finish);
  PERFMODEL_TRY(kept,
                once(fmt::format("{} of {} {} {}", key_of(asked), static_cast<int>(kind.mixer),
                                 static_cast<int>(kind.inner), kind.slides),
                     price));
  return finish(**kept);
}

constexpr PassCosts PartCosts::*kPasses[] = {&PartCosts::forward, &PartCosts::backward,
                                             &PartCosts::again};
constexpr double PartCosts::*kPartSums[] = {&PartCosts::experts_again, &PartCosts::context_again,
                                            &PartCosts::parameters,    &PartCosts::experts,
                                            &PartCosts::frozen,        &PartCosts::kept_bytes,
                                            &PartCosts::pinned_bytes};

void add_share(PartCosts& sum, double share, const PartCosts& of) {
  for (const auto pass : kPasses) sum.*pass = sum.*pass + share * of.*pass;
  for (const auto member : kPartSums) sum.*member += share * of.*member;
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

// Adds the parts that learn to predict tokens beyond the next, at the end: a layer, a product of
// two residual streams, the output layer and a loss once more each.
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
                                 std::string_view gpu, const AskOptions& options,
                                 const PricedOnce& once) {
  ShardCosts mean;
  PartCosts last;
  const auto layers = static_cast<double>(question.model.layers);
  bool first = true;
  for (const LayerKind& kind : layer_kinds(question.model)) {
    const GraphOf graph_of = [&](std::int64_t count, GraphForm form) {
      return rewritten(build_decoder_layers(layers_config(question, kind, count)), question,
                       form == GraphForm::kCompiled);
    };
    const bool sees_all = kind.attends() && !kind.slides;
    PERFMODEL_TRY(costs, costs_of_kind(question, kind, graph_of, predictor, gpu, options, once));
    costs->layer.experts = experts_of(question, kind);
    costs->layer.frozen = frozen_of(question, kind);
    if (kind.mixer == LayerKind::Mixer::kStateSpace) {
      for (const auto pass : kPasses) {
        (costs->layer.*pass).state_us = (costs->layer.*pass).kernel_us;
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

// `build_decoder_layers` knows neither learned positions nor dropout nor scores in memory.
bool is_built_by_kind(const ShardQuestion& question) {
  if (!has_plain_layers(question.model) || question.lora_rank > 0) return true;
  return (question.fused_layers || question.compiled) && is_llama_like(question.model) &&
         question.attention == LayoutJob::Attention::kFlash;
}

Result<ShardCosts> shard_costs(const ShardQuestion& question, const Predictor& predictor,
                               std::string_view gpu, const AskOptions& options,
                               const PricedOnce& once) {
  if (is_built_by_kind(question)) return costs_by_kind(question, predictor, gpu, options, once);
  auto costs = costs_of_kind(
      question, layer_kinds(question.model).front(),
      [&](std::int64_t layers, GraphForm form) {
        return form == GraphForm::kWholeStep
                   ? whole_step(question, layers)
                   : shard_graph(question, layers, form == GraphForm::kCompiled);
      },
      predictor, gpu, options, once);
  if (!costs) return costs;
  costs->attending = 1;
  add_next_tokens(question.model, PartCosts(costs->layer), *costs);
  return costs;
}

}  // namespace perfmodel
