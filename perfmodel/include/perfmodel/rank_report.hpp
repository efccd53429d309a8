#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  double step_us = 0;    ///< of the slowest rank
  double imbalance = 0;  ///< slowest rank's own work (device work that is no collective + waiting
                         ///< host excluded) over the mean, minus 1
  std::int64_t straggler = -1;  ///< rank that the others wait for most; -1: nobody waits
  double straggler_saving_us =
      0;  ///< mean over the ranks: what the step gets shorter if nobody waited for it
};

}  // namespace perfmodel
