#include "layout/layout_results.hpp"
#include "layout_report.hpp"

namespace perfmodel::cli {
namespace {

Json list_json(const std::vector<RankedLayout>& layouts) {
  Json list = Json::array();
  for (const RankedLayout& one : layouts) list.push_back(layout_json(one));
  return list;
}

template <class Share>
Json shares_json(const std::vector<Share>& shares) {
  Json list = Json::array();
  for (const auto& [what, share] : shares) {
    list.push_back({{"what", what}, {"share", six_digits(share)}});
  }
  return list;
}

}  // namespace

Json layout_json(const RankedLayout& ranked) {
  Json json = json_object(ranked, kRankedLayoutFields);
  json["levers"] = shares_json(layout_levers(ranked));
  return json;
}

Json layout_json(const LayoutReport& report) {
  const LayoutJob& job = *report.job;
  Json json = document(schemas::kLayout);
  json["model"] = json_object(job.model, kDecoderFields);
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
  json["worth_measuring"] = shares_json(report.open);
  if (report.measured) json["measured"] = json_object(*report.measured, kMeasuredFitFields);
  json["warnings"] = report.warnings;
  return json;
}

}  // namespace perfmodel::cli
