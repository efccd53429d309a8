#include "layout_results.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <string>

#include "base/each_name.hpp"
#include "layer_kinds.hpp"

namespace perfmodel {
namespace {

using Decoder = DecoderModel;
using Fit = MeasuredFit;

struct LayoutTermRow {
  std::string_view key, words;
  std::string_view lever;  ///< empty: none
};
constexpr LayoutTermRow kTermRows[kLayoutTerms] = {
    {"compute", "compute", ""},
    {"host", "the host", "less host work (CUDA graphs, compiled layers, a faster CPU)"},
    {"tensor_parallel", "tp traffic", "overlap of tensor-parallel traffic"},
    {"pipeline_transfers", "pp traffic", "a faster network for the hops between stages"},
    {"bubble", "the bubble", "more microbatches per step"},
    {"data_parallel", "dp traffic", "a larger batch or a faster network for gradients"},
    {"optimizer", "the optimizer", "an optimizer that moves less memory"},
    {"expert_parallel", "ep traffic",
     "overlap of the exchange with experts, or fewer nodes for a group of experts"},
    {"context_parallel", "cp traffic", "a ring instead of gathers, or fewer ranks per sequence"},
    {"offload", "copies to the host", "less in host memory, or a faster link to it"},
};

const LayoutTermRow& term_row(LayoutTerm term) { return kTermRows[static_cast<std::size_t>(term)]; }

auto gigabytes(double LayoutPrediction::*member) {
  return [member](const LayoutPrediction& price) { return price.*member / 1e9; };
}

OrderedNumbers terms_by_name(const LayoutPrediction& price) {
  OrderedNumbers terms;
  for (std::size_t i = 0; i < kLayoutTerms; ++i) {
    terms[std::string(kTermRows[i].key)] = price.terms_ms[i];
  }
  return terms;
}

OrderedNumbers bytes_by_part(std::span<const LayoutMemoryPart> parts,
                             const LayoutPrediction& price) {
  OrderedNumbers made;
  for (const auto& [key, words, bytes] : parts) made[std::string(key)] = price.*bytes;
  return made;
}
OrderedNumbers memory_by_part(const LayoutPrediction& price) {
  return bytes_by_part(kLayoutMemoryParts, price);
}
OrderedNumbers host_by_part(const LayoutPrediction& price) {
  return bytes_by_part(kLayoutHostParts, price);
}

OrderedNumbers fit_factors(const Fit& fit) { return {fit.factors.begin(), fit.factors.end()}; }

}  // namespace

const ResultFields<Decoder> kDecoderFields = {
    PERFMODEL_FIELDS(Decoder, name, layers, hidden, heads),
    {"kv_heads", kv_heads_of},
    PERFMODEL_FIELDS(Decoder, feed_forward, gated, vocabulary, tied, positions),
    {"parameters", [](const Decoder& model) { return parameter_count(model); }},
    {"active_parameters", active_parameter_count},
    {"experts", [](const Decoder& model) { return model.experts.experts; }},
    {"top_k",
     [](const Decoder& model) { return model.experts.experts > 0 ? model.experts.top_k : 0; }},
};

const ResultFields<ParallelLayout> kParallelLayoutFields = {
    PERFMODEL_FIELDS(ParallelLayout, dp, tp, pp, vp, cp, ep, zero, micro_batch),
    {"recompute", [](const ParallelLayout& layout) { return to_string(layout.recompute); }},
    {"sequence_parallel", &ParallelLayout::sequence_parallel},
    {"schedule", &ParallelLayout::order},
};
const ResultFields<ParallelLayout> kLaterLayoutFields = {
    // keys at the end, as versions added them
    PERFMODEL_FIELDS(ParallelLayout, etp, context, dispatcher, async_tp),
    {"offload",
     [](const ParallelLayout& layout) { return std::string(to_string(layout.offload)); }},
};

const ResultFields<LayoutPrediction> kLayoutPriceFields = {
    {"predicted_step_ms", &LayoutPrediction::step_ms},
    PERFMODEL_FIELDS(LayoutPrediction, low_ms, high_ms, tokens_per_s_per_gpu, mfu, hfu),
    {"memory_gb", gigabytes(&LayoutPrediction::reserved_bytes)},
    {"allocated_gb", gigabytes(&LayoutPrediction::allocated_bytes)},
    {"weights_gb", gigabytes(&LayoutPrediction::weight_bytes)},
    {"gradients_gb", gigabytes(&LayoutPrediction::gradient_bytes)},
    {"optimizer_gb", gigabytes(&LayoutPrediction::optimizer_bytes)},
    {"activations_gb", gigabytes(&LayoutPrediction::activation_bytes)},
    {"device_gb", gigabytes(&LayoutPrediction::device_bytes)},
    PERFMODEL_FIELDS(LayoutPrediction, fits, bubble_share, exposed_comm_share, limit, stage_layers),
    {"terms_ms", terms_by_name},
    {"logits_gb", gigabytes(&LayoutPrediction::logit_bytes)},
    {"memory_parts_bytes", memory_by_part, Digits::kAll},
    PERFMODEL_FIELDS(LayoutPrediction, fullest_stage, software, attention, attention_share),
    {"host_memory_gb", gigabytes(&LayoutPrediction::host_bytes)},
    {"host_memory_parts_bytes", host_by_part, Digits::kAll},
};

const ResultFields<RankedLayout> kRankedLayoutFields = joined_fields<RankedLayout>(
    {part_fields<RankedLayout>(&RankedLayout::layout, kParallelLayoutFields),
     part_fields<RankedLayout>(&RankedLayout::prediction, kLayoutPriceFields),
     part_fields<RankedLayout>(&RankedLayout::layout, kLaterLayoutFields)});

const ResultFields<MeasuredStep> kMeasuredStepFields = named_fields(
    joined_fields<MeasuredStep>(
        {part_fields<MeasuredStep>(
             [](const MeasuredStep& step) -> const Decoder& { return step.job.model; },
             kDecoderFields),
         part_fields<MeasuredStep>(&MeasuredStep::layout, kParallelLayoutFields),
         {{"sequence", [](const MeasuredStep& step) { return step.job.sequence; }},
          {"global_batch", [](const MeasuredStep& step) { return step.job.global_batch; }},
          {"precision", [](const MeasuredStep& step) { return step.job.precision; }},
          {"software", [](const MeasuredStep& step) { return step.job.software; }},
          {"step_ms", &MeasuredStep::step_ms, Digits::kAll},
          {"compute_ms", &MeasuredStep::compute_ms, Digits::kAll}}}),
    {"layers",     "hidden",   "heads",    "kv_heads",     "feed_forward", "gated",
     "vocabulary", "tied",     "sequence", "global_batch", "dp",           "tp",
     "pp",         "vp",       "zero",     "micro_batch",  "recompute",    "sequence_parallel",
     "precision",  "schedule", "software", "step_ms",      "compute_ms"});

const ResultFields<Fit> kMeasuredFitFields = {
    PERFMODEL_FIELDS(Fit, steps, mape_before, mape_after, mape_left_out, median_before,
                     median_after, median_left_out),
    {"factors", fit_factors},
};

std::string_view to_string(LayoutTerm term) { return term_row(term).key; }
std::string_view term_words(LayoutTerm term) { return term_row(term).words; }

std::vector<LayoutLever> layout_levers(const RankedLayout& ranked) {
  const LayoutPrediction& price = ranked.prediction;
  std::vector<LayoutLever> levers;
  constexpr double kLeast = 0.005;  // share of the step
  for (std::size_t i = 0; i < kLayoutTerms; ++i) {
    const double share = price.step_ms > 0 ? price.terms_ms[i] / price.step_ms : 0;
    const bool on_host = ranked.layout.offload.optimizer && kTermRows[i].key == "optimizer";
    const std::string_view lever =
        on_host ? "the optimizer on the GPUs, or faster hosts" : kTermRows[i].lever;
    if (!lever.empty() && share >= kLeast) levers.push_back({lever, share});
  }
  if (price.mfu > 0 && price.hfu - price.mfu > kLeast * price.hfu) {
    levers.push_back({"memory enough to keep activations instead of computing them again",
                      (1 - price.mfu / price.hfu) *
                          price.terms_ms[static_cast<std::size_t>(LayoutTerm::kCompute)] /
                          price.step_ms});
  }
  std::ranges::stable_sort(levers, std::ranges::greater(), &LayoutLever::share);
  return levers;
}

}  // namespace perfmodel
