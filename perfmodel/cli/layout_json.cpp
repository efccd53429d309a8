#include "layout/layout_json.hpp"
#include "layout_measured.hpp"
#include "layout_report.hpp"

namespace perfmodel::cli {
namespace {

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
          {"parameters", parameter_count(model)},
          {"active_parameters", active_parameter_count(model)},
          {"experts", model.experts.experts},
          {"top_k", model.experts.experts > 0 ? model.experts.top_k : 0}};
}

Json list_json(const std::vector<RankedLayout>& layouts) {
  Json list = Json::array();
  for (const RankedLayout& one : layouts) list.push_back(layout_json(one));
  return list;
}

}  // namespace

Json layout_json(const RankedLayout& ranked) {
  Json json = perfmodel::layout_json(ranked, six_digits);
  Json levers = Json::array();
  for (const LayoutLever& lever : layout_levers(ranked)) {
    levers.push_back({{"what", lever.what}, {"share", six_digits(lever.share)}});
  }
  json["levers"] = std::move(levers);
  return json;
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
  Json open = Json::array();
  for (const OpenEffect& one : report.open) {
    open.push_back({{"what", one.what}, {"share", six_digits(one.share)}});
  }
  json["worth_measuring"] = std::move(open);
  if (report.measured) json["measured"] = measured_json(*report.measured);
  json["warnings"] = report.warnings;
  return json;
}

}  // namespace perfmodel::cli
