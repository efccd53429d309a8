#include "path_results.hpp"

namespace perfmodel {
namespace {

using PathStep = CriticalPath::Step;

const ResultFields<PathStep> kPathStepFields = {
    {"op", &PathStep::op},
    {"term", &PathStep::category},
    {"time_us", &PathStep::us},
    PERFMODEL_FIELDS(PathStep, count, own_us, slack_us),
};
const ResultFields<PathStep> kPathStepIfFree = {{"step_if_free_us", &PathStep::step_if_free_us}};

const ResultFields<CriticalPath::Share> kPathShareFields = {
    {"term", &CriticalPath::Share::category},
    {"time_us", &CriticalPath::Share::us},
};

auto path_steps_json(std::vector<PathStep> CriticalPath::*steps) {
  return [steps](const CriticalPath& path) {
    OrderedJson list = json_list(path.*steps, kPathStepFields);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const PathStep& step = (path.*steps)[i];
      if (step.step_if_free_us >= 0) list[i].update(json_object(step, kPathStepIfFree));
    }
    return list;
  };
}

}  // namespace

const ResultFields<CriticalPath> kCriticalPathFields = {
    {"critical_path", path_steps_json(&CriticalPath::steps)},
    {"critical_path_shares",
     [](const CriticalPath& path) { return json_list(path.shares, kPathShareFields); }},
    {"off_path", path_steps_json(&CriticalPath::off_path)},
};

const ResultFields<RankReport> kRankReportFields = {
    PERFMODEL_FIELDS(RankReport, transfer_us, waiting_us, exposed_us, caused_us, collectives,
                     last_arrivals),
};

const ResultFields<JobReport> kJobReportFields = {
    {"step_us", &JobReport::step_us},
    {"imbalance", &JobReport::imbalance, Digits::kAll},
    {"straggler",
     [](const JobReport& job) {
       return job.straggler >= 0 ? std::optional(job.straggler) : std::nullopt;
     }},
    {"straggler_saving_us", &JobReport::straggler_saving_us},
};

}  // namespace perfmodel
