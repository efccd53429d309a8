#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// Communication of one rank. Times in microseconds, per step; counts over all reported steps.
struct RankReport {
  double transfer_us = 0;  ///< moving data, all ranks there
  double waiting_us = 0;   ///< in collectives, for ranks that came later
  double exposed_us = 0;   ///< collectives running (or waiting) while no other device work did
  double caused_us = 0;    ///< waiting of the others, summed, where this rank came last
  std::size_t collectives = 0, last_arrivals = 0;
};

/// A job of several ranks. Times in microseconds, per step.
struct JobReport {
  double step_us = 0;  ///< step of the slowest rank
  /// Step of the slowest rank over the mean, minus 1, if no rank waited for another.
  double imbalance = 0;
  /// The rank that the others wait for most: its recorded number, else its position; -1: none.
  std::int64_t straggler = -1;
  double straggler_saving_us = 0;  ///< gain of the mean step if no rank waited for it
};

/// Steps of all ranks, in microseconds, if no rank waited for the ignored ones (`ignored[rank]`).
using StepsWithout = std::function<Result<std::vector<double>>(const std::vector<bool>& ignored)>;

/// Reports on ranks with these steps and this communication. Asks `steps_without` for the pace of
/// each rank alone, and for the steps without the straggler. Errors: as for `steps_without`.
Result<JobReport> job_report(std::span<const double> steps_us,
                             std::span<const RankReport> communication,
                             const StepsWithout& steps_without);

}  // namespace perfmodel
