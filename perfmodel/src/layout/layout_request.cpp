#include "layout_request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <tuple>
#include <utility>

#include "base/each_name.hpp"
#include "host_offload.hpp"
#include "json/csv_file.hpp"
#include "layout_checks.hpp"
#include "layout_choice.hpp"
#include "layout_work.hpp"
#include "packed_lengths.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

Unexpected bad_request(std::string message) { return decline(std::move(message)); }

Result<NamedDecoder> base_decoder(const LayoutAsk& request) {
  if (request.model.empty()) {
    NamedDecoder made;
    made.model.name = "the given sizes";
    return made;
  }
  const bool is_file =
      request.model.ends_with(".json") || request.model.find('/') != std::string::npos;
  return is_file && request.reads_files ? read_decoder_config(request.model)
                                        : find_decoder(request.model);
}

void change_sizes(const LayoutAsk& request, DecoderModel& model) {
  const bool other_heads = request.heads && !request.kv_heads;
  if (request.layers) model.layers = *request.layers;
  if (request.hidden) model.hidden = *request.hidden;
  if (request.heads) model.heads = *request.heads;
  if (other_heads) model.kv_heads = model.heads;
  if (request.kv_heads) model.kv_heads = *request.kv_heads;
  if (request.feed_forward) model.feed_forward = *request.feed_forward;
  if (request.vocabulary) model.vocabulary = *request.vocabulary;
  if (request.positions) model.positions = *request.positions;
  if (request.gated) model.gated = *request.gated;
  if (request.tied) model.tied = *request.tied;
}

Result<void> all_sizes(const DecoderModel& model) {
  const std::pair<std::string_view, std::int64_t> sizes[] = {
      PERFMODEL_VALUES(model, layers, hidden, heads, feed_forward, vocabulary)};
  std::vector<std::string_view> missing;
  for (const auto& [name, size] : sizes) {
    if (size < 1) missing.push_back(name);
  }
  if (missing.empty()) return {};
  if (missing.size() == std::size(sizes)) {
    return bad_request(
        "expected a model or its sizes (layers, hidden, heads, feed_forward, vocabulary), found "
        "none");
  }
  return bad_request(
      fmt::format("expected all sizes of the model, found none for {}", fmt::join(missing, ", ")));
}

// Reads a name; an empty one leaves the value as it is.
template <class Parse, class Value>
Result<void> set_name(const std::string& text, Parse parse, Value& to) {
  if (text.empty()) return {};
  return parse(text).map([&](Value value) { to = value; });
}

Result<void> name_job(const LayoutAsk& request, LayoutJob& job) {
  static constexpr LayoutName<bool> kGradients[] = {{"fp32", true}, {"bf16", false}};
  const auto gradients = [](std::string_view text) {
    return layout_choice("grad_dtype", text, kGradients);
  };
  return set_name(request.precision, parse_layout_precision, job.precision)
      .and_then([&] { return set_name(request.attention, parse_layout_attention, job.attention); })
      .and_then([&] { return set_name(request.optimizer, parse_layout_optimizer, job.optimizer); })
      .and_then([&] { return set_name(request.grad_dtype, gradients, job.fp32_gradients); });
}

}  // namespace

Result<void> change_experts(const LayoutAsk& request, DecoderModel& model) {
  if (request.head_width) model.head_width = *request.head_width;
  if (request.experts) model.experts.experts = *request.experts;
  if (request.next_tokens) model.next_tokens = *request.next_tokens;
  const std::tuple<std::string_view, const std::optional<std::int64_t>*, std::int64_t*> sizes[] = {
      {"top_k", &request.top_k, &model.experts.top_k},
      {"expert_hidden", &request.expert_hidden, &model.experts.hidden},
      {"shared_hidden", &request.shared_hidden, &model.experts.shared},
      {"dense_layers", &request.dense_layers, &model.experts.dense_layers}};
  for (const auto& [name, given, to] : sizes) {
    if (!*given) continue;
    if (model.experts.experts == 0) {
      return bad_request(fmt::format("{}: expected a number of experts with it, found none", name));
    }
    *to = **given;
  }
  return {};
}

Result<void> pack_sequences(const LayoutAsk& request, LayoutJob& job) {
  if (request.lengths.empty()) return {};
  if (!request.reads_files)
    return bad_request("lengths: expected a command line, which may name files, found a request");
  return packed_share(request.lengths, job.sequence).map([&](const PackedShare& share) {
    job.packed_mean = share.mean;
    job.packed_deviation = share.deviation;
  });
}

Result<void> change_training(const LayoutAsk& request, LayoutJob& job) {
  job.expert_imbalance = request.expert_imbalance.value_or(0);
  job.expert_capacity = request.expert_capacity.value_or(0);
  job.lora_rank = request.lora.value_or(0);
  job.frozen_bits = request.frozen_bits.value_or(16);
  job.compiled = request.compiled.value_or(false);
  PERFMODEL_TRY_TO(set_name(request.cuda_graphs, parse_cuda_graphs, job.cuda_graphs));
  job.fp8_activations = request.fp8_activations.value_or(false);
  job.host_bytes_per_s = 1e9 * request.host_gb_per_s.value_or(0);
  job.optimizer_offload_fraction = request.optimizer_offload_fraction.value_or(1);
  job.nvme_bytes_per_s = 1e9 * request.nvme_gb_per_s.value_or(0);
  PERFMODEL_TRY_TO(set_name(request.host_memory, parse_host_memory, job.host_memory_bytes));
  PERFMODEL_TRY_TO(set_name(request.loss, parse_loss, job.loss_chunks));
  static constexpr LayoutName<bool> kKnown[] = {{"attention", false}, {"all", true}};
  const auto on_all = [](std::string_view text) { return layout_choice("lora_on", text, kKnown); };
  return set_name(request.lora_on, on_all, job.lora_on_all);
}

Result<LayoutQuestion> layout_question(const LayoutAsk& request) {
  PERFMODEL_TRY(base, base_decoder(request));
  LayoutQuestion question{.notes = std::move(base->notes)};
  LayoutJob& job = question.job;
  job.model = std::move(base->model);
  change_sizes(request, job.model);
  PERFMODEL_TRY_TO(change_experts(request, job.model));
  PERFMODEL_TRY_TO(all_sizes(job.model));
  job.sequence = request.sequence.value_or(base->sequence);
  if (job.sequence < 1) return bad_request("sequence: expected tokens per sequence, found none");
  if (!request.global_batch) {
    return bad_request(
        "global_batch: expected sequences per optimizer step (--global-batch), found none");
  }
  // By sizes alone, as in a table; rotary positions are no GPT's.
  if (request.model.empty() && !job.model.gated && request.positions != 0) {
    make_gpt(job.model, request.positions.value_or(job.sequence));
  }
  if (request.positions.value_or(0) > 0 && (job.model.gated || job.model.rms_norm)) {
    return bad_request(
        "positions: expected layers like GPT's (--no-gated) with learned positions, found others");
  }
  // A longer table of positions, as programs that train on longer sequences have it.
  if (job.model.positions > 0 && job.model.positions < job.sequence) {
    job.model.positions = job.sequence;
  }
  job.global_batch = *request.global_batch;
  PERFMODEL_TRY_TO(name_job(request, job));
  job.dropout = request.dropout;
  PERFMODEL_TRY_TO(pack_sequences(request, job));
  PERFMODEL_TRY_TO(change_training(request, job));
  if (!request.software.empty()) job.software = request.software;
  return question;
}

Result<ParallelLayout> layout_of(const LayoutAsk& parts) {
  ParallelLayout layout;
  const std::tuple<std::string_view, const std::optional<std::int64_t>*, std::int64_t*> counts[] = {
      {"dp", &parts.dp, &layout.dp},    {"tp", &parts.tp, &layout.tp},
      {"pp", &parts.pp, &layout.pp},    {"vp", &parts.vp, &layout.vp},
      {"cp", &parts.cp, &layout.cp},    {"ep", &parts.ep, &layout.ep},
      {"etp", &parts.etp, &layout.etp}, {"micro_batch", &parts.micro_batch, &layout.micro_batch}};
  for (const auto& [name, given, to] : counts) {
    if (!*given) continue;
    if (**given < 1) {
      return bad_request(fmt::format("{}: expected at least 1, found {}", name, **given));
    }
    *to = **given;
  }
  const auto real = [](std::int64_t number) { return static_cast<double>(number); };
  if (real(layout.dp) * real(layout.tp) * real(layout.pp) * real(layout.cp) > real(kMostGpus)) {
    return bad_request(fmt::format("expected at most {} GPUs, found dp {} tp {} pp {} cp {}",
                                   kMostGpus, layout.dp, layout.tp, layout.pp, layout.cp));
  }
  const auto dispatcher = [](std::string_view text) {
    return parse_dispatcher(text).map([](Dispatcher one) { return std::optional(one); });
  };
  const auto named =
      set_name(parts.zero, parse_sharding, layout.zero)
          .and_then([&] { return set_name(parts.recompute, parse_recompute, layout.recompute); })
          .and_then([&] { return set_name(parts.dispatcher, dispatcher, layout.dispatcher); })
          .and_then([&] { return set_name(parts.schedule, parse_pipeline_order, layout.order); })
          .and_then([&] { return set_name(parts.offload, parse_offload, layout.offload); })
          .and_then(
              [&] { return set_name(parts.context, parse_context_exchange, layout.context); });
  if (!named) return Unexpected{named.error()};
  if (lies_as_v(layout.order) && !parts.vp) layout.vp = 2;
  layout.context_balanced = parts.context_balanced.value_or(true);
  layout.overlap_experts = parts.overlap_experts;
  layout.async_tp = parts.async_tp.value_or(false);
  layout.sequence_parallel = parts.sequence_parallel.value_or(layout.tp > 1) && layout.tp > 1;
  if (!parts.world) return layout;
  const std::int64_t others = layout.tp * layout.pp * layout.cp;
  const bool divides = *parts.world % others == 0;
  if (!divides || (parts.dp && *parts.dp * others != *parts.world)) {
    return bad_request(
        fmt::format("world: expected GPUs that dp {} tp {} pp {}{} make up, found {}",
                    parts.dp ? std::to_string(layout.dp) : "N", layout.tp, layout.pp,
                    layout.cp > 1 ? fmt::format(" cp {}", layout.cp) : "", *parts.world));
  }
  layout.dp = *parts.world / others;
  return layout;
}

std::string_view suitable_software(const Gpu& gpu, const LayoutJob& job,
                                   const ParallelLayout& layout) {
  using Precision = LayoutJob::Precision;
  if (job.compiled) return "torchtitan";
  if (job.model.experts.experts > 0 || job.precision == Precision::kFp4) return "nemo";
  const bool is_data_parallel = layout.tp == 1 && layout.pp == 1 && layout.cp == 1;
  if (gathers_parameters(layout.zero) || is_data_parallel) return "fsdp";
  const bool is_old = job.precision == Precision::kFp16 || gpu.architecture.name == "ampere";
  return is_old ? "megatron-deepspeed" : "nemo";
}

std::string_view nearest_software(const Gpu& gpu, const LayoutJob& job,
                                  const ParallelLayout& layout) {
  constexpr std::int64_t kMostMeasured = 512;
  const bool gathers = gathers_parameters(layout.zero) || layout.zero == Sharding::kZero2;
  const bool is_measured = gpu.architecture.name == "hopper" && layout.gpus() <= kMostMeasured &&
                           job.model.experts.experts == 0 && !gathers &&
                           job.precision == LayoutJob::Precision::kBf16;
  return is_measured ? "nanotron" : suitable_software(gpu, job, layout);
}

std::string nothing_fits(const LayoutRanking& ranking, std::int64_t gpus) {
  const LayoutPrediction& least = ranking.smallest.prediction;
  const double times = least.reserved_bytes / least.device_bytes;
  if (times <= 1) {
    return fmt::format(
        "no layout of {} GPUs fits: the least host memory of a node found is {:.1f} GB ({})", gpus,
        least.host_bytes / 1e9, layout_words(ranking.smallest.layout));
  }
  return fmt::format(
      "no layout of {} GPUs fits: the least memory found is {:.1f} GB of {:.1f} ({}); about {:.0f} "
      "such GPUs, or GPUs of {:.0f} GB, would hold it",
      gpus, least.reserved_bytes / 1e9, least.device_bytes / 1e9,
      layout_words(ranking.smallest.layout), std::ceil(times * static_cast<double>(gpus)),
      std::ceil(least.reserved_bytes / 1e9));
}

std::string layout_words(const ParallelLayout& layout) {
  std::string words = fmt::format("dp {}", layout.dp);
  const std::pair<std::string_view, std::int64_t> counts[] = {
      PERFMODEL_VALUES(layout, tp, pp, vp, cp, ep, etp)};
  for (const auto& [name, count] : counts) {
    if (count > 1) words += fmt::format(" {} {}", name, count);
  }
  words += fmt::format(" micro-batch {}", layout.micro_batch);
  if (layout.zero != Sharding::kNone) {
    const bool numbered = layout.zero < Sharding::kFsdp;
    words += fmt::format(" {}{}", numbered ? "ZeRO-" : "", to_string(layout.zero));
  }
  if (layout.recompute != LayoutRecompute::kNone) {
    const bool named = layout.recompute.what <= LayoutRecompute::kOp;
    words += fmt::format(fmt::runtime(named ? " {} recomputation" : " recompute {}"),
                         to_string(layout.recompute));
  }
  if (layout.cp > 1 && layout.context != ContextExchange::kRing) {
    words += fmt::format(" {} of the context", to_string(layout.context));
  }
  if (layout.dispatcher) words += fmt::format(" {}", to_string(*layout.dispatcher));
  if (layout.async_tp) words += " asynchronous tensor parallelism";
  if (layout.tp > 1 && !layout.sequence_parallel) words += " no sequence parallelism";
  if (layout.order == PipelineOrder::kGpipe) words += " GPipe";
  if (splits_backward(layout.order)) words += fmt::format(" {}", to_string(layout.order));
  if (layout.searched_stages) words += " uneven stages";
  if (layout.offload.any()) words += fmt::format(" {} on the host", to_string(layout.offload));
  return words;
}

}  // namespace perfmodel
