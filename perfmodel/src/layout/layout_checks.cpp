#include "layout_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/size_limits.hpp"
#include "layer_kinds.hpp"
#include "layout_names.hpp"
#include "layout_work.hpp"
#include "packed_lengths.hpp"

namespace perfmodel {
namespace {

// Limits within which counts and their sums are exact.
constexpr std::int64_t kMostWidth = 1 << 24, kMostTokens = std::int64_t{1} << 32;
constexpr double kMostParameters = 1e15, kMostElements = 1e17;

Unexpected impossible_layout(std::string message) { return decline(std::move(message)); }

Result<void> expect_divides(std::string_view what, std::int64_t value, std::string_view by_what,
                            std::int64_t by) {
  if (by > 0 && value % by == 0) return {};
  return impossible_layout(
      fmt::format("{}: expected a multiple of {} = {}, found {}", what, by_what, by, value));
}

struct NamedSize {
  std::string_view name;
  std::int64_t size, most;
};

Result<void> check_sizes(std::int64_t least, std::span<const NamedSize> sizes) {
  for (const auto& [name, size, most] : sizes) {
    if (size < least) {
      return impossible_layout(
          fmt::format("{}: expected at least {}, found {}", name, least, size));
    }
    if (size > most) {
      return impossible_layout(fmt::format("{}: expected at most {}, found {}", name, most, size));
    }
  }
  return {};
}

Result<void> check_degrees(const ParallelLayout& layout) {
  const NamedSize sizes[] = {
      {"dp", layout.dp, kMostGpus},   {"tp", layout.tp, kMostGpus},
      {"pp", layout.pp, kMostGpus},   {"vp", layout.vp, kMostLayers},
      {"cp", layout.cp, kMostGpus},   {"ep", layout.ep, kMostGpus},
      {"etp", layout.etp, kMostGpus}, {"micro_batch", layout.micro_batch, kMostTokens}};
  PERFMODEL_TRY_TO(check_sizes(1, sizes));
  const double gpus = static_cast<double>(layout.dp) * static_cast<double>(layout.tp) *
                      static_cast<double>(layout.pp) * static_cast<double>(layout.cp);
  if (gpus > static_cast<double>(kMostGpus)) {
    return impossible_layout(fmt::format("expected at most {} GPUs, found dp {} tp {} pp {} cp {}",
                                         kMostGpus, layout.dp, layout.tp, layout.pp, layout.cp));
  }
  return {};
}

Result<void> check_context(const LayoutJob& job, const ParallelLayout& layout) {
  if (layout.cp == 1) return {};
  const bool halves = layout.context_balanced;
  PERFMODEL_TRY_TO(expect_divides("sequence", job.sequence, halves ? "2 cp" : "cp",
                                  halves ? 2 * layout.cp : layout.cp));
  if (job.attention == LayoutJob::Attention::kEager) {
    return impossible_layout(
        "cp: expected flash attention (blocks of eager scores are not "
        "exchanged), found eager");
  }
  if (job.model.sinks) {
    return impossible_layout(
        "cp: expected attention without sinks (their exchange is not modelled), found some");
  }
  if (layout.context != ContextExchange::kAllToAll) return {};
  return expect_divides("heads", job.model.heads, "tp cp", layout.tp * layout.cp);
}

Result<void> check_experts_of(const LayoutJob& job, const ParallelLayout& layout) {
  const DecoderModel& model = job.model;
  const std::int64_t experts = model.experts.experts;
  if (experts == 0) {
    if (layout.dispatcher) {
      return impossible_layout(fmt::format("dispatcher: expected a model with experts, found {}",
                                           to_string(*layout.dispatcher)));
    }
    if (layout.ep == 1 && layout.etp == 1) return {};
    return impossible_layout(
        fmt::format("ep: expected 1 for a model without experts, found ep {} and etp {}", layout.ep,
                    layout.etp));
  }
  PERFMODEL_TRY_TO(expect_divides("experts", experts, "ep", layout.ep));
  PERFMODEL_TRY_TO(expect_divides("expert_hidden", expert_hidden_of(model), "etp", layout.etp));
  PERFMODEL_TRY_TO(expect_divides("shared_hidden", model.experts.shared, "tp", layout.tp));
  if (layout.tp > 1 && !layout.sequence_parallel) {
    return impossible_layout(
        "sequence_parallel: expected it where tp splits a model with experts, found none");
  }
  return expect_divides("dp cp tp", layout.dp * layout.cp * layout.tp, "ep etp",
                        layout.ep * layout.etp);
}

// States of a hybrid are split by groups of heads.
Result<void> check_states(const DecoderModel& model, const ParallelLayout& layout) {
  if (model.state_layers == 0) return {};
  return expect_divides("groups of state heads", model.states.groups, "tp", layout.tp);
}

// Refuses options that only graphs of plain layers can hold.
Result<void> check_kinds(const LayoutJob& job) {
  const DecoderModel& model = job.model;
  if (job.lora_rank > 0 && job.lora_on_all && model.experts.experts > 0) {
    return impossible_layout("lora_on: expected attention (experts take no adapters), found all");
  }
  if (has_plain_layers(model) && job.lora_rank == 0) return {};
  if (job.attention == LayoutJob::Attention::kEager && !model.sinks) {
    return impossible_layout(
        "attention: expected flash for models with experts, latent attention, windows, states or "
        "adapters, found eager");
  }
  if (model.positions == 0) return {};
  return impossible_layout(
      "positions: expected rotary ones for models with experts or adapters, found learned ones");
}

// Schedules that split the backward pass fix the chunks per stage.
Result<void> check_split_schedule(const LayoutJob& job, const ParallelLayout& layout) {
  const std::string_view name = to_string(layout.order);
  if (layout.pp == 1) {
    return impossible_layout(
        fmt::format("schedule {}: expected pipeline stages (pp above 1), found pp 1", name));
  }
  const std::int64_t chunks = parallel::chunks_of(split_schedule_of(layout.order));
  if (layout.vp != chunks) {
    return impossible_layout(
        fmt::format("vp: expected {} with schedule {}, found {}", chunks, name, layout.vp));
  }
  const std::int64_t microbatches = job.global_batch / (layout.dp * layout.micro_batch);
  const std::int64_t least = layout.order == PipelineOrder::kDualPipe ? 2 * layout.pp : 1;
  if (microbatches >= least) return {};
  return impossible_layout(
      fmt::format("microbatches: expected at least 2 pp = {} with schedule {}, "
                  "found {}",
                  least, name, microbatches));
}

Result<void> check_division(const LayoutJob& job, const ParallelLayout& layout) {
  const DecoderModel& model = job.model;
  const std::int64_t kv_heads = kv_heads_of(model);
  const std::int64_t together = layout.dp * layout.micro_batch;
  PERFMODEL_TRY_TO(expect_divides("heads", model.heads, "tp", layout.tp));
  // Beyond one head of keys and values a rank, ranks hold the same one.
  if (has_plain_layers(model) || kv_heads > layout.tp) {
    PERFMODEL_TRY_TO(expect_divides("kv_heads", kv_heads, "tp", layout.tp));
  }
  PERFMODEL_TRY_TO(expect_divides("feed_forward", model.feed_forward, "tp", layout.tp));
  // Heads of a width of their own need not make up the model's.
  const std::int64_t heads = model.head_width > 0 ? 1 : model.heads;
  PERFMODEL_TRY_TO(expect_divides("hidden", model.hidden, "heads", heads));
  PERFMODEL_TRY_TO(check_context(job, layout));
  PERFMODEL_TRY_TO(check_packed(job, layout));
  PERFMODEL_TRY_TO(check_experts_of(job, layout));
  PERFMODEL_TRY_TO(check_states(model, layout));
  if (layout.sequence_parallel) {
    PERFMODEL_TRY_TO(expect_divides("sequence / cp", job.sequence / layout.cp, "tp", layout.tp));
  }
  PERFMODEL_TRY_TO(expect_divides("global_batch", job.global_batch, "dp micro_batch", together));
  if (splits_backward(layout.order)) return check_split_schedule(job, layout);
  if (layout.vp == 1) return {};
  if (layout.pp == 1) {
    return impossible_layout(
        fmt::format("vp: expected 1 without pipeline stages, found {}", layout.vp));
  }
  if (layout.order == PipelineOrder::kGpipe) {
    return impossible_layout(fmt::format("vp: expected 1 with GPipe, found {}", layout.vp));
  }
  return expect_divides("microbatches", job.global_batch / together, "pp", layout.pp);
}

// Gathers and scatters exist only with sequence parallelism.
Result<void> check_async(const ParallelLayout& layout) {
  if (!layout.async_tp || (layout.tp > 1 && layout.sequence_parallel)) return {};
  return impossible_layout(
      fmt::format("async_tp: expected tp above 1 with sequence parallelism, found tp {}{}",
                  layout.tp, layout.tp > 1 ? " without" : ""));
}

Result<void> check_graphs(const LayoutJob& job) {
  const unsigned scopes = job.cuda_graphs;
  const bool routes = (scopes & (LayoutJob::kRouterGraph | LayoutJob::kPreprocessGraph)) != 0;
  if (scopes == 0 || scopes == LayoutJob::kFullGraph) return {};
  std::string_view expected;
  if ((scopes & LayoutJob::kFullGraph) != 0) expected = "full alone, or parts";
  if (job.compiled) expected = "none or full of compiled layers";
  if (job.attention == LayoutJob::Attention::kEager) expected = "none or full of eager attention";
  if (routes && job.model.experts.experts == 0)
    expected = "none, attention or full of dense models";
  if ((scopes & LayoutJob::kPreprocessGraph) != 0 && (scopes & LayoutJob::kRouterGraph) == 0) {
    expected = "router together with preprocess";
  }
  if (expected.empty()) return {};
  return impossible_layout(fmt::format("cuda_graphs: expected {}, found {}", expected,
                                       cuda_graph_words(job.cuda_graphs)));
}

// torch.compile can rewrite layers that are built kind by kind, and whole graphs on one rank.
Result<void> check_compiled(const LayoutJob& job, const ParallelLayout& layout) {
  const bool llama = job.model.gated || job.model.rms_norm;
  const bool flash = job.attention != LayoutJob::Attention::kEager;
  if (!job.compiled || layout.tp == 1 || (llama && flash)) return {};
  return impossible_layout(fmt::format(
      "compiled: expected tp of 1 for layers like GPT's and eager attention, found {}", layout.tp));
}

// The largest tensor of a microbatch: scores of attention or of words, a product's result.
Result<void> check_tensors(const LayoutJob& job, const ParallelLayout& layout) {
  const auto real = [](std::int64_t size) { return static_cast<double>(size); };
  const DecoderModel& model = job.model;
  const double widest = std::max({real(model.hidden), real(model.feed_forward),
                                  real(model.vocabulary), real(model.heads) * real(job.sequence)});
  const double elements = real(layout.micro_batch) * real(job.sequence) * widest;
  if (elements <= kMostElements) return {};
  return impossible_layout(
      fmt::format("micro_batch: expected tensors of at most {:.0e} elements, found about {:.0e}",
                  kMostElements, elements));
}

// Sizes whose 0 stands for another one, or for none of it; heads that lie side by side.
Result<void> check_optional_sizes(const DecoderModel& model) {
  const DecoderExperts& experts = model.experts;
  const LatentAttentionSizes& latent = model.latent;
  const StateSpaceSizes& states = model.states;
  const NamedSize sizes[] = {{"kv_heads", model.kv_heads, kMostWidth},
                             {"head_width", model.head_width, kMostWidth},
                             {"positions", model.positions, kMostTokens},
                             {"window", model.window, kMostTokens},
                             {"windowed_layers", model.windowed_layers, kMostLayers},
                             {"state_layers", model.state_layers, kMostLayers},
                             {"attention_layers", model.attention_layers, kMostLayers},
                             {"next_tokens", model.next_tokens, kMostLayers},
                             {"experts", experts.experts, kMostWidth},
                             {"top_k", experts.top_k, kMostWidth},
                             {"expert_hidden", experts.hidden, kMostWidth},
                             {"shared_hidden", experts.shared, kMostWidth},
                             {"expert_input", experts.input, kMostWidth},
                             {"dense_layers", experts.dense_layers, kMostLayers},
                             {"query_rank", latent.query_rank, kMostWidth},
                             {"key_value_rank", latent.key_value_rank, kMostWidth},
                             {"plain_width", latent.plain_width, kMostWidth},
                             {"rotary_width", latent.rotary_width, kMostWidth},
                             {"value_width", latent.value_width, kMostWidth},
                             {"state_heads", states.heads, kMostWidth},
                             {"state_head_width", states.head_width, kMostWidth},
                             {"state_groups", states.groups, kMostWidth},
                             {"state", states.state, kMostWidth},
                             {"chunk", states.chunk, kMostTokens}};
  PERFMODEL_TRY_TO(check_sizes(0, sizes));
  const std::int64_t widest = std::max(
      {head_width_of(model), latent.plain_width + latent.rotary_width, latent.value_width});
  const NamedSize products[] = {
      {"heads times their width", model.heads * widest, kMostWidth},
      {"state_heads times their width", states.heads * states.head_width, kMostWidth},
      {"state_groups times state", states.groups * states.state, kMostWidth}};
  PERFMODEL_TRY_TO(check_sizes(0, products));
  return expect_divides("heads", model.heads, "kv_heads", kv_heads_of(model));
}

// Parts of a layer that the model has.
unsigned known_modules(const DecoderModel& model) {
  using Recompute = LayoutRecompute;
  if (model.state_layers > 0) return 0;
  const DecoderExperts& experts = model.experts;
  unsigned known = Recompute::kCoreAttention | Recompute::kNorms;
  if (model.latent.key_value_rank > 0) known |= Recompute::kLatentProjection;
  if (experts.experts == 0 || experts.dense_layers > 0) known |= Recompute::kDenseInner;
  if (experts.experts > 0) known |= Recompute::kExpertActivation | Recompute::kExpertInner;
  if (experts.shared > 0) known |= Recompute::kSharedExpert;
  return known;
}

Result<void> check_recompute(const DecoderModel& model, const LayoutRecompute& recompute) {
  const NamedSize count[] = {{"recompute", recompute.count, kMostLayers}};
  PERFMODEL_TRY_TO(check_sizes(1, count));
  // Kept activations are known of attention with queries, keys and values of their own.
  const bool knows = model.state_layers == 0 && model.latent.key_value_rank == 0;
  if (recompute == LayoutRecompute::kOp && !knows) {
    return impossible_layout(
        "recompute: expected none, selective or full for latent attention and states, found op");
  }
  const unsigned known = known_modules(model), asked = recompute.modules;
  if ((asked & ~known) == 0) return {};
  const LayoutRecompute others(LayoutRecompute::kModules, 1,
                               static_cast<std::uint8_t>(asked & ~known));
  return impossible_layout(fmt::format("recompute: expected parts that layers of {} have, found {}",
                                       model.name.empty() ? "the model" : model.name,
                                       to_string(others)));
}

// Errors: a part of nothing, or with all weights on the host; drives below zero 3, or with an
// unknown rate.
Result<void> check_part_of_optimizer(const LayoutJob& job, const ParallelLayout& layout) {
  const LayoutOffload& offload = layout.offload;
  const double part = job.optimizer_offload_fraction;
  if (!(part > 0 && part <= 1)) {
    return impossible_layout(
        fmt::format("optimizer_offload_fraction: expected above 0, at most 1, found {}", part));
  }
  if (part < 1 && (!offload.optimizer || offload.parameters)) {
    return impossible_layout(fmt::format(
        "optimizer_offload_fraction: expected offload optimizer, without parameters, found {}",
        to_string(offload)));
  }
  if (!offload.nvme) return {};
  if (layout.zero != Sharding::kZero3) {
    return impossible_layout(fmt::format("offload optimizer-nvme: expected zero 3, found zero {}",
                                         to_string(layout.zero)));
  }
  if (job.nvme_bytes_per_s > 0 && std::isfinite(job.nvme_bytes_per_s)) return {};
  return impossible_layout(
      "offload optimizer-nvme: expected nvme_gb_per_s, what the drives of a node move, found none");
}

// Errors: an optimizer that no CPU runs; parameters that are not gathered unit by unit.
Result<void> check_offload(const LayoutJob& job, const ParallelLayout& layout) {
  const LayoutOffload& offload = layout.offload;
  PERFMODEL_TRY_TO(check_part_of_optimizer(job, layout));
  if (offload.optimizer && job.optimizer == LayoutJob::Optimizer::kAdamW8bit) {
    return impossible_layout(
        "offload optimizer: expected adamw or sgd (CPUs have no 8-bit one), found "
        "adamw-8bit");
  }
  if (!offload.parameters) return {};
  if (!offload.optimizer) {
    return impossible_layout("offload parameters: expected the optimizer there, too, found none");
  }
  if (gathers_by_unit(layout)) return {};
  return impossible_layout(fmt::format(
      "offload parameters: expected zero 3, fsdp or hsdp without pipeline stages, found zero {} "
      "and pp {}",
      to_string(layout.zero), layout.pp));
}

// Errors: numbers of the host below 0; fp8 storage of products that are not in fp8, or of layers
// whose products' inputs are not known.
Result<void> check_storage(const LayoutJob& job) {
  for (const auto& [name, number] : {std::pair{"host_memory", job.host_memory_bytes},
                                     {"host_gb_per_s", job.host_bytes_per_s / 1e9}}) {
    if (number >= 0 && std::isfinite(number)) continue;
    return impossible_layout(fmt::format("{}: expected at least 0, found {}", name, number));
  }
  if (!job.fp8_activations) return {};
  if (job.precision != LayoutJob::Precision::kFp8) {
    return impossible_layout(
        fmt::format("fp8_activations: expected precision fp8, found {}", to_string(job.precision)));
  }
  if (job.model.state_layers == 0) return {};
  return impossible_layout("fp8_activations: expected layers of attention alone, found states");
}

}  // namespace

Result<void> check_layout_job(const LayoutJob& job) {
  const DecoderModel& model = job.model;
  const NamedSize sizes[] = {{"layers", model.layers, kMostLayers},
                             {"hidden", model.hidden, kMostWidth},
                             {"heads", model.heads, kMostWidth},
                             {"feed_forward", model.feed_forward, kMostWidth},
                             {"vocabulary", model.vocabulary, kMostTokens},
                             {"sequence", job.sequence, kMostTokens},
                             {"global_batch", job.global_batch, kMostTokens}};
  PERFMODEL_TRY_TO(check_sizes(1, sizes));
  const auto real = [](std::int64_t size) { return static_cast<double>(size); };
  PERFMODEL_TRY_TO(check_optional_sizes(model));
  const DecoderExperts& experts = model.experts;
  if (experts.experts > 0 && (experts.top_k < 1 || experts.top_k > experts.experts)) {
    return impossible_layout(fmt::format("top_k: expected 1 to the {} experts, found {}",
                                         experts.experts, experts.top_k));
  }
  if (std::max(model.windowed_layers, experts.dense_layers) > model.layers ||
      model.state_layers + model.attention_layers > model.layers) {
    return impossible_layout(fmt::format(
        "layers: expected at least as many as of all kinds together, found {}", model.layers));
  }
  const NamedSize adapters[] = {{"lora", job.lora_rank, kMostWidth}};
  PERFMODEL_TRY_TO(check_sizes(0, adapters));
  if (job.frozen_bits != 16 && (job.frozen_bits != 4 || job.lora_rank == 0)) {
    return impossible_layout(
        fmt::format("frozen_bits: expected 16, or 4 with adapters, found {}", job.frozen_bits));
  }
  if (!(job.expert_imbalance >= 0 && job.expert_imbalance <= 100) ||
      !(job.expert_capacity >= 0 && job.expert_capacity <= 100)) {
    return impossible_layout(
        fmt::format("expert_imbalance, expert_capacity: expected 0 to 100, found {} and {}",
                    job.expert_imbalance, job.expert_capacity));
  }
  PERFMODEL_TRY_TO(check_kinds(job));
  PERFMODEL_TRY_TO(check_storage(job));
  const double layer =
      real(model.hidden) * (4 * real(model.hidden) + 3 * real(model.feed_forward)) +
      3 * real(experts.experts) * real(model.hidden) * real(expert_hidden_of(model));
  const double numbers = real(model.layers) * layer +
                         (2 * real(model.vocabulary) + real(model.positions)) * real(model.hidden);
  if (numbers <= kMostParameters) return {};
  return impossible_layout(
      fmt::format("expected a model of at most {:.0e} parameters, found about {:.0e}",
                  kMostParameters, numbers));
}

Result<void> check_layout(const LayoutJob& job, const ParallelLayout& layout) {
  PERFMODEL_TRY_TO(check_layout_job(job));
  PERFMODEL_TRY_TO(check_degrees(layout));
  PERFMODEL_TRY_TO(check_tensors(job, layout));
  PERFMODEL_TRY_TO(check_division(job, layout));
  PERFMODEL_TRY_TO(check_recompute(job.model, layout.recompute));
  PERFMODEL_TRY_TO(check_offload(job, layout));
  PERFMODEL_TRY_TO(check_async(layout));
  PERFMODEL_TRY_TO(check_graphs(job));
  return check_compiled(job, layout);
}

}  // namespace perfmodel
