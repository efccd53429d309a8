#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// Communication of one rank in one step. Times in microseconds.
struct RankReport {
  double transfer_us = 0;  ///< moving data, all ranks there
  double waiting_us = 0;   ///< in collectives, for ranks that came later
  double exposed_us = 0;   ///< collectives running (or waiting) while no other device work did
  double caused_us = 0;    ///< waiting of the others, summed, where this rank came last
  std::size_t collectives = 0, last_arrivals = 0;
};

/// A job of several ranks. Times in microseconds, per step.
struct JobReport {
  double step_us = 0;  ///< of the slowest rank
  /// Step of the slowest rank over the mean, minus 1, if nobody waited for anybody.
  double imbalance = 0;
  std::int64_t straggler = -1;  ///< position of the rank that the others wait for most; -1: nobody
  double straggler_saving_us = 0;  ///< what the mean step loses if nobody waited for it
};

/// The job of ranks with these steps, as they are and if nobody waited for anybody, and this
/// communication. `mean_without(rank)` is asked for the mean step if nobody waited for that rank.
Result<JobReport> job_report(std::span<const double> steps_us, std::span<const double> own_steps_us,
                             std::span<const RankReport> communication,
                             const std::function<Result<double>(std::size_t)>& mean_without);

}  // namespace perfmodel
