#include "perfmodel/detail/rank_report.hpp"

#include <algorithm>
#include <numeric>

namespace perfmodel {

namespace {

double mean(std::span<const double> values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

}  // namespace

Result<JobReport> job_report(std::span<const double> steps_us,
                             std::span<const RankReport> communication,
                             const StepsWithout& steps_without) {
  JobReport job;
  if (steps_us.empty()) return job;
  job.step_us = *std::max_element(steps_us.begin(), steps_us.end());
  PERFMODEL_TRY(own, steps_without(std::vector<bool>(steps_us.size(), true)));
  if (mean(*own) > 0) job.imbalance = *std::max_element(own->begin(), own->end()) / mean(*own) - 1;

  const auto most = std::max_element(
      communication.begin(), communication.end(),
      [](const RankReport& a, const RankReport& b) { return a.caused_us < b.caused_us; });
  if (most->caused_us <= 0) return job;
  const auto straggler = static_cast<std::size_t>(most - communication.begin());
  std::vector<bool> ignored(steps_us.size(), false);
  ignored[straggler] = true;
  PERFMODEL_TRY(without, steps_without(ignored));
  const double saving = mean(steps_us) - mean(*without);
  // Waiting that other work hides costs nothing.
  constexpr double kLeastSavingUs = 0.01;
  if (saving < kLeastSavingUs) return job;
  job.straggler = static_cast<std::int64_t>(straggler);
  job.straggler_saving_us = saving;
  return job;
}

}  // namespace perfmodel
