#include "ways_to_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "perfmodel/memory.hpp"
#include "rewrites/attention_support.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kGpusOfNode = 8;
constexpr double kMargin = 1.25;  // more options cost less memory than this factor and the weights

struct FitOption {
  std::string_view name, value;
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
    auto rewrite = rewrite_by_name(std::string(option.name), std::string(option.value));
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

bool has_more_options(const FitOptions& many, const FitOptions& few) {
  const auto has = [&](const FitOption& one) { return std::ranges::find(many, one) != many.end(); };
  return many.size() > few.size() && !few.empty() && std::ranges::all_of(few, has);
}

/// FSDP and options of the update leave the activations as they are.
bool keeps_activations(const FitOptions& options) {
  return std::ranges::all_of(options, [](const FitOption& option) {
    return option.name == "optimizer" || option.name == "grad-dtype";
  });
}

/// Bytes that an attempt needs at least, by the step as it is and by attempts with more options,
/// which may hold copies of the weights in another type.
double least_bytes(const Attempt& attempt, const Attempts& attempts, const PredictedMemory& as_is) {
  const double weights = at(as_is.by_purpose, MemoryPurpose::kWeights);
  double least = 0;
  if (keeps_activations(attempt.options)) {
    least = at(as_is.by_purpose, MemoryPurpose::kActivations);
  }
  for (const Attempt& other : attempts) {
    const bool does_more = other.answer && has_more_options(other.options, attempt.options);
    if (does_more) least = std::max(least, other.needed_bytes() / kMargin - weights);
  }
  return least;
}

/// Asks the attempts that may fit, or need the least memory. The strongest go first: they say how
/// much the others need at least.
void ask_hopeful(Attempts& attempts, const ExecutionGraph& graph, const PredictedMemory& as_is,
                 const WhatIfTarget& here) {
  std::vector<Attempt*> strongest, others;
  for (Attempt& attempt : attempts) {
    const bool is_part = std::ranges::any_of(attempts, [&](const Attempt& other) {
      return has_more_options(other.options, attempt.options);
    });
    (is_part || keeps_activations(attempt.options) ? others : strongest).push_back(&attempt);
  }
  ask(strongest, graph, here);
  double least = as_is.needed_bytes();
  for (const Attempt* attempt : strongest) {
    if (attempt->answer) least = std::min(least, attempt->needed_bytes());
  }
  const double enough = std::max(as_is.device_bytes, least);
  std::erase_if(others, [&](const Attempt* attempt) {
    return least_bytes(*attempt, attempts, as_is) > enough;
  });
  const bool shards =
      std::erase_if(others, [](const Attempt* one) { return one->options.empty(); });
  ask(others, graph, here);
  if (!shards) return;
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
