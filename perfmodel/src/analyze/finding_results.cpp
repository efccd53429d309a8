#include "analyze/finding_results.hpp"

namespace perfmodel {

const ResultFields<Finding> kFindingFields = {
    PERFMODEL_FIELDS(Finding, rule, title, where, share, gain_us, gain_share, confidence, advice,
                     folded),
};

OrderedJson findings_json(const FindingsReport& report) {
  const Findings& found = report.found;
  OrderedJson json = {{"inputs", report.files}};
  if (!report.rewrites.empty()) json["rewrites"] = report.rewrites;
  json.update(
      {{"gpu", report.gpu.empty() ? OrderedJson(nullptr) : OrderedJson(report.gpu)},
       {"step_us", rounded(found.step_us)},
       {"measured_us", found.measured_us ? rounded(*found.measured_us) : OrderedJson(nullptr)},
       {"findings", json_list(found.findings, kFindingFields)},
       {"warnings", found.warnings}});
  return json;
}

}  // namespace perfmodel
