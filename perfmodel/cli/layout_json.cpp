#include "layout_report.hpp"

namespace perfmodel::cli {
namespace {

constexpr double kDecimalGigabyte = 1e9;

Json decoder_json(const DecoderModel& model) {
  return {{"name", model.name},
          {"layers", model.layers},
          {"hidden", model.hidden},
          {"heads", model.heads},
          {"kv_heads", model.kv_heads > 0 ? model.kv_heads : model.heads},
          {"feed_forward", model.feed_forward},
          {"gated", model.gated},
          {"vocabulary", model.vocabulary},
          {"tied", model.tied},
          {"positions", model.positions},
          {"parameters", parameter_count(model)}};
}

Json list_json(const std::vector<RankedLayout>& layouts) {
  Json list = Json::array();
  for (const RankedLayout& one : layouts) list.push_back(layout_json(one));
  return list;
}

}  // namespace

Json layout_json(const RankedLayout& ranked) {
  const ParallelLayout& layout = ranked.layout;
  const LayoutPrediction& made = ranked.prediction;
  Json terms = Json::object();
  for (std::size_t i = 0; i < kLayoutTerms; ++i) {
    terms[std::string(to_string(static_cast<LayoutTerm>(i)))] = six_digits(made.terms_ms[i]);
  }
  Json levers = Json::array();
  for (const LayoutLever& lever : layout_levers(ranked)) {
    levers.push_back({{"what", lever.what}, {"share", six_digits(lever.share)}});
  }
  return {{"dp", layout.dp},
          {"tp", layout.tp},
          {"pp", layout.pp},
          {"vp", layout.vp},
          {"cp", layout.cp},
          {"ep", layout.ep},
          {"zero", to_string(layout.zero)},
          {"micro_batch", layout.micro_batch},
          {"recompute", to_string(layout.recompute)},
          {"sequence_parallel", layout.sequence_parallel},
          {"schedule", layout.order == PipelineOrder::kGpipe ? "gpipe" : "1f1b"},
          {"predicted_step_ms", six_digits(made.step_ms)},
          {"low_ms", six_digits(made.low_ms)},
          {"high_ms", six_digits(made.high_ms)},
          {"tokens_per_s_per_gpu", six_digits(made.tokens_per_s_per_gpu)},
          {"mfu", six_digits(made.mfu)},
          {"hfu", six_digits(made.hfu)},
          {"memory_gb", six_digits(made.reserved_bytes / kDecimalGigabyte)},
          {"allocated_gb", six_digits(made.allocated_bytes / kDecimalGigabyte)},
          {"weights_gb", six_digits(made.weight_bytes / kDecimalGigabyte)},
          {"gradients_gb", six_digits(made.gradient_bytes / kDecimalGigabyte)},
          {"optimizer_gb", six_digits(made.optimizer_bytes / kDecimalGigabyte)},
          {"activations_gb", six_digits(made.activation_bytes / kDecimalGigabyte)},
          {"device_gb", six_digits(made.device_bytes / kDecimalGigabyte)},
          {"fits", made.fits},
          {"bubble_share", six_digits(made.bubble_share)},
          {"exposed_comm_share", six_digits(made.exposed_comm_share)},
          {"limit", to_string(made.limit)},
          {"terms_ms", std::move(terms)},
          {"levers", std::move(levers)}};
}

Json layout_json(const LayoutReport& report) {
  const LayoutJob& job = *report.job;
  Json json = document(schemas::kLayout);
  json["model"] = decoder_json(job.model);
  json["gpu"] = report.gpu;
  json["topology"] = report.topology;
  json["gpus"] = report.gpus;
  json["global_batch"] = job.global_batch;
  json["sequence"] = job.sequence;
  json["software"] = job.software;
  json["flop_per_token"] = model_flop_per_token(job.model, job.sequence);
  if (report.search) {
    const LayoutRanking& search = *report.search;
    json["search"] = {{"considered", search.considered},
                      {"priced", search.priced},
                      {"fitting", search.fitting},
                      {"complete", search.complete},
                      {"seconds", six_digits(report.seconds)}};
  }
  json["layouts"] = list_json(report.layouts);
  if (report.search) {
    json["frontier"] = list_json(report.search->frontier);
    json["smallest"] = layout_json(report.search->smallest);
  }
  json["warnings"] = report.warnings;
  return json;
}

}  // namespace perfmodel::cli
