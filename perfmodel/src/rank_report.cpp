#include "perfmodel/rank_report.hpp"

#include <algorithm>
#include <numeric>

namespace perfmodel {

Result<JobReport> job_report(std::span<const double> steps_us, std::span<const double> own_steps_us,
                             std::span<const RankReport> communication,
                             const std::function<Result<double>(std::size_t)>& mean_without) {
  JobReport job;
  const auto count = static_cast<double>(steps_us.size());
  double own_sum = 0, own_most = 0;
  std::size_t straggler = 0;
  for (std::size_t r = 0; r < steps_us.size(); ++r) {
    job.step_us = std::max(job.step_us, steps_us[r]);
    own_sum += own_steps_us[r];
    own_most = std::max(own_most, own_steps_us[r]);
    if (communication[r].caused_us > communication[straggler].caused_us) straggler = r;
  }
  if (own_sum > 0) job.imbalance = own_most / (own_sum / count) - 1;
  if (steps_us.empty() || communication[straggler].caused_us <= 0) return job;
  const auto without = mean_without(straggler);
  if (!without) return Unexpected{without.error()};
  const double saving = std::accumulate(steps_us.begin(), steps_us.end(), 0.0) / count - *without;
  // Waiting that is hidden behind other work costs nothing.
  constexpr double kLeastSavingUs = 0.01;
  if (saving < kLeastSavingUs) return job;
  job.straggler = static_cast<std::int64_t>(straggler);
  job.straggler_saving_us = saving;
  return job;
}

}  // namespace perfmodel
