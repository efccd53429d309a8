#include "replay_scaled.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "overheads/statistics.hpp"
#include "perfmodel/graph/rewrite.hpp"

namespace perfmodel {
namespace {

constexpr double kMostError = 0.1;  // largest error of a replay that allows what-ifs

template <class Visit>
void for_each_iteration(Replay& replay, const Replay& unscaled, Visit&& visit) {
  for (std::size_t r = 0; r < replay.ranks.size(); ++r) {
    for (std::size_t k = 0; k < replay.ranks[r].iterations.size(); ++k) {
      visit(replay.ranks[r].iterations[k], unscaled.ranks[r].iterations[k]);
    }
  }
}

void compare(Replay& replay, const Replay& unscaled) {
  double unrecorded = 0, error = 0;
  std::size_t count = 0;
  for_each_iteration(replay, unscaled, [&](Replay::Iteration& at, const Replay::Iteration& as_is) {
    at.unscaled_us = as_is.replayed_us;
    at.unscaled_device_period_us = as_is.replayed_device_period_us;
    at.queue_filling |= as_is.queue_filling;
    unrecorded += at.unrecorded_device_us;
    error += std::abs(at.error());
    ++count;
  });
  for (Replay::Rank& rank : replay.ranks) {
    rank.mean_abs_error = rank.worst_abs_error = 0;
    for (const Replay::Iteration& at : rank.iterations) {
      rank.mean_abs_error += std::abs(at.error()) / static_cast<double>(rank.iterations.size());
      rank.worst_abs_error = std::max(rank.worst_abs_error, std::abs(at.error()));
    }
  }
  if (count == 0) return;
  replay.mean_abs_error = error / static_cast<double>(count);
  replay.unrecorded_device_us = unrecorded / static_cast<double>(count);
}

Replay::Medians medians(const Replay& replay) {
  Replay::Medians made;
  std::vector<double> measured, unscaled, replayed, measured_period, replayed_period;
  for (const Replay::Rank& rank : replay.ranks) {
    for (const Replay::Iteration& at : rank.iterations) {
      if (at.queue_filling) {
        ++made.left_out;
        continue;
      }
      ++made.iterations;
      if (at.measured_us > 0) measured.push_back(at.measured_us);
      unscaled.push_back(at.unscaled_us);
      replayed.push_back(at.replayed_us);
      if (at.measured_device_period_us > 0) {
        measured_period.push_back(at.measured_device_period_us);
        replayed_period.push_back(at.replayed_device_period_us);
      }
    }
  }
  made.measured_us = median_of(measured);
  made.unscaled_us = median_of(unscaled);
  made.replayed_us = median_of(replayed);
  made.measured_device_period_us = median_of(measured_period);
  made.replayed_device_period_us = median_of(replayed_period);
  return made;
}

}  // namespace

Result<Replay> replay_scaled(const ReplayOptions& options,
                             const std::function<Result<Replay>(const ReplayOptions&)>& run) {
  for (double scale : {options.scale_kernels, options.scale_host, options.scale_unrecorded}) {
    if (scale >= 0 && scale <= kMostKernelTimeScale) continue;
    return decline(
        fmt::format("expected a scale from 0 to {}, found {}", kMostKernelTimeScale, scale));
  }
  PERFMODEL_TRY(made, run(options));
  if (options.scale_kernels == 1 && options.scale_host == 1 && options.scale_unrecorded == 1) {
    compare(*made, *made);
    made->median = medians(*made);
    return made;
  }
  ReplayOptions as_recorded = options;
  as_recorded.scale_kernels = as_recorded.scale_host = as_recorded.scale_unrecorded = 1;
  as_recorded.keep_timeline = as_recorded.keep_chakra = false;
  PERFMODEL_TRY(unscaled, run(as_recorded));
  compare(*made, *unscaled);
  made->median = medians(*made);
  if (made->mean_abs_error > kMostError && !options.force) {
    return decline(
        fmt::format("expected a replay within {:.0f} % of what was measured to ask what-ifs of, "
                    "found {:.1f} % (--force asks all the same)",
                    100 * kMostError, 100 * made->mean_abs_error));
  }
  return made;
}

}  // namespace perfmodel
