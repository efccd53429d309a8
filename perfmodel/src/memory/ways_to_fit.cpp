#include "ways_to_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "graph_memory.hpp"
#include "perfmodel/memory.hpp"
#include "rewrite/memory/shortened_step.hpp"
#include "rewrites/attention_support.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kGpusOfNode = 8;
constexpr double kCertain = 0.97;  // times the line; gpt and bert of 8 to 48 layers: 1 to 1.05

struct FitOption {
  std::string_view name;
  std::string value;
  auto operator<=>(const FitOption&) const = default;
};
using FitOptions = std::vector<FitOption>;

/// Options that people try first, alone and together. Options that a graph cannot take are left
/// out.
std::vector<FitOptions> options_to_try(const Gpu& gpu) {
  const bool has_bf16 = gpu.peak_tflop_per_s.bf16_matrix.has_value();
  const FitOption autocast = {"precision", has_bf16 ? "bf16" : "fp16-scaled"};
  const FitOption half_model = {"precision", has_bf16 ? "bf16-o2" : "fp16-o2"};
  const FitOption in_place = {"in-place", "gelu+layernorm"}, dropout = {"recompute", "dropout"};
  const FitOption full = {"recompute", "full"}, offload = {"offload-activations", "on"};
  const FitOption half_gradients = {"grad-dtype", has_bf16 ? "bf16" : "fp16"};
  const FitOption attention = {"attention",
                               lacks_attention("flash", gpu).empty() ? "flash" : "efficient"};
  const FitOption loss = {"fuse-loss", "linear"};
  return {
      {attention},
      {loss},
      {attention, loss},
      {autocast, attention},
      {autocast, attention, loss},
      {{"optimizer", "fused"}},
      {{"optimizer", "8bit"}},
      {half_gradients},
      {in_place},
      {dropout},
      {in_place, dropout},
      {{"recompute", "selective"}},
      {full},
      {autocast},
      {half_model},
      {offload},
      {autocast, offload},
      {autocast, full},
      {half_model, full},
  };
}

std::optional<Variant> variant_of(const FitOptions& options, const RewriteByName& rewrite_by_name) {
  Variant variant;
  for (const FitOption& option : options) {
    auto rewrite = rewrite_by_name(std::string(option.name), option.value);
    if (!rewrite) return std::nullopt;
    variant.name += (variant.name.empty() ? "" : " ") + rewrite->name;
    variant.rewrites.push_back(std::move(*rewrite));
  }
  return variant;
}

double us_per_sample(const WhatIfAnswer& answer) {
  const double samples = static_cast<double>(answer.batch.value_or(1));
  return answer.e2e_us / samples;
}

/// One thing to try. Without options: FSDP.
struct Attempt {
  FitOptions options;
  Variant variant;
  double least_bytes = 0;                             // it needs as many, or more
  std::optional<WhatIfAnswer> answer = std::nullopt;  // none: not asked, or refused

  double needed_bytes() const { return answer->memory.needed_bytes(); }
};
using Attempts = std::vector<Attempt>;

/// Memory options, alone and together, a smaller batch, and FSDP on the GPUs of a node.
Attempts attempts_for(const Gpu& gpu, const ExecutionGraph& graph, const PredictedMemory& memory,
                      const RewriteByName& rewrite_by_name) {
  Attempts attempts;
  const auto add = [&](const FitOptions& options) {
    auto variant = variant_of(options, rewrite_by_name);
    if (variant) attempts.push_back({options, std::move(*variant)});
  };
  for (const FitOptions& options : options_to_try(gpu)) add(options);
  // Weights, gradients and moments alone may be too much already.
  const auto most = memory.static_fits() ? largest_batch(graph, gpu) : LargestBatch{};
  const std::string batch = std::to_string(most ? most->batch : 0);
  if (batch != "0") add({{"batch", batch}});
  attempts.push_back({{}, {.name = fmt::format("FSDP on {} GPUs", kGpusOfNode)}});
  return attempts;
}

/// Asks some attempts. Those that begin alike follow each other and share rewrites.
void ask(std::vector<Attempt*> asked, const ExecutionGraph& graph, const WhatIfTarget& target) {
  std::ranges::sort(asked, {}, &Attempt::options);
  std::vector<Variant> variants;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    variants.push_back(asked[i]->variant);
    const FitOptions& options = asked[i]->options;
    const auto parted = std::ranges::mismatch(options, asked[i - (i > 0)]->options).in1;
    if (i > 0) variants.back().shared = parted - options.begin();
  }
  auto answers = what_if(graph, variants, {&target, 1}, {.only_fitting = true});
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (!answers[i].error) asked[i]->answer = std::move(answers[i]);
  }
}

/// FSDP and options of the update leave the activations as they are.
bool keeps_activations(const FitOptions& options) {
  return std::ranges::all_of(options, [](const FitOption& option) {
    return option.name == "optimizer" || option.name == "grad-dtype";
  });
}

/// Bytes in use at the peaks of the forward pass, the backward pass and the update.
std::array<double, 3> peaks_of(const ExecutionGraph& graph) {
  const MemoryPlan plan = memory_plan(graph);
  const auto curve = memory_curve(plan, storage_bytes(plan, graph));
  std::array<double, 3> peaks{};
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const std::int32_t node = plan.events[i].node;
    const bool is_after = node >= plan.lifetimes.forward_end;
    double& peak = peaks[is_after + (is_after && node >= plan.lifetimes.optimizer_begin)];
    peak = std::max(peak, std::accumulate(curve[i].begin(), curve[i].end(), 0.0));
  }
  return peaks;
}

/// The peak of a changed step with all its layers: at least on the line through three and four,
/// for each peak is the largest of several lines. Empty: a rewrite refuses.
std::optional<double> least_peak(const ShortenedStep& step, const Variant& variant) {
  const auto three = apply_rewrites(step.with_three, variant.rewrites);
  if (!three) return std::nullopt;
  const auto four = apply_rewrites(step.with_four, variant.rewrites);
  if (!four) return std::nullopt;
  const auto few = peaks_of(*three), more = peaks_of(*four);
  double least = 0;
  for (std::size_t i = 0; i < few.size(); ++i) {
    const double line = few[i] + (more[i] - few[i]) * static_cast<double>(step.layers - 3);
    least = std::max(least, line);
  }
  return least;
}

/// Bounds the bytes of each attempt, by the step as it is and by few of its layers. A rewrite that
/// refuses these may take all (activations of few layers are not worth an offload): no bound.
void set_least_bytes(Attempts& attempts, const ExecutionGraph& graph,
                     const PredictedMemory& as_is) {
  const auto shortened = shortened_step(graph);
  for (Attempt& attempt : attempts) {
    const bool fits = !attempt.options.empty() && attempt.options.front().name == "batch";
    if (keeps_activations(attempt.options)) {
      attempt.least_bytes = at(as_is.by_purpose, MemoryPurpose::kActivations);
    } else if (shortened && !fits) {
      const auto peak = least_peak(*shortened, attempt.variant);
      if (peak) attempt.least_bytes = kCertain * *peak + as_is.context_bytes;
    }
  }
}

/// Asks the attempts that may fit, or need the least memory. The most hopeful go first.
void ask_hopeful(Attempts& attempts, const ExecutionGraph& graph, const PredictedMemory& as_is,
                 const WhatIfTarget& here) {
  set_least_bytes(attempts, graph, as_is);
  std::vector<Attempt*> left;
  for (Attempt& attempt : std::span(attempts).first(attempts.size() - 1)) left.push_back(&attempt);
  std::ranges::stable_sort(left, {}, &Attempt::least_bytes);
  // The bytes of the device, or the least that an answer needs; `otherwise`: there is none yet.
  const auto enough = [&](double otherwise) {
    std::optional<double> least;
    for (const Attempt* attempt : left) {
      if (!attempt->answer) continue;
      least = std::min(least.value_or(attempt->needed_bytes()), attempt->needed_bytes());
    }
    return std::max(as_is.device_bytes, least.value_or(otherwise));
  };
  for (auto begin = left.begin(); begin != left.end();) {
    const auto end = std::ranges::upper_bound(begin, left.end(), enough((*begin)->least_bytes), {},
                                              &Attempt::least_bytes);
    if (begin == end) break;
    ask({begin, end}, graph, here);
    begin = end;
  }
  if (attempts.back().least_bytes > enough(as_is.needed_bytes())) return;
  WhatIfTarget node = here;
  node.options.world_size = kGpusOfNode;
  node.options.scale_out =
      ScaleOut{.world = kGpusOfNode, .strategy = ParallelStrategy::kFsdp, .topology = nullptr};
  ask({&attempts.back()}, graph, node);
}

}  // namespace

Result<WaysToFit> ways_to_fit(const WhatIfTarget& here, const ExecutionGraph& graph,
                              const PredictedMemory& as_is, const RewriteByName& rewrite_by_name) {
  Attempts attempts = attempts_for(here.gpu, graph, as_is, rewrite_by_name);
  ask_hopeful(attempts, graph, as_is, here);
  WaysToFit ways{.fitting = {}, .least = std::nullopt, .tried = attempts.size()};
  for (Attempt& attempt : attempts) {
    if (!attempt.answer) continue;
    const double needed = attempt.needed_bytes();
    WayToFit way{.how = attempt.variant.name, .answer = std::move(*attempt.answer)};
    if (!ways.least || needed < ways.least->answer.memory.needed_bytes()) ways.least = way;
    if (way.answer.memory.fits()) ways.fitting.push_back(std::move(way));
  }
  if (ways.fitting.empty()) return ways;
  ways.least.reset();
  const Variant unchanged;
  const WhatIfAnswer alone = std::move(what_if(graph, {&unchanged, 1}, {&here, 1})[0]);
  if (alone.error) return Unexpected{*alone.error};
  for (WayToFit& way : ways.fitting) {
    way.slowdown = us_per_sample(way.answer) / us_per_sample(alone);
  }
  std::ranges::stable_sort(ways.fitting, {}, &WayToFit::slowdown);
  return ways;
}

}  // namespace perfmodel
