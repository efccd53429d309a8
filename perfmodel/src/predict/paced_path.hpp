#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "predict/job_tasks.hpp"

namespace perfmodel {

/// Last tasks of a rank's passes on the host, or on the device if the host runs ahead.
inline const std::vector<TaskGraph::TaskId>& paced_ends(const JobTasks& tasks, std::size_t rank) {
  const bool runs_ahead = pass_us(tasks, rank) > tasks.period(rank) * (1 + kSteadyTolerance / 2);
  return runs_ahead ? tasks.ranks[rank]->pass_device_ends() : tasks.ranks[rank]->pass_ends();
}

/// The tasks of the chain before `last` that took time after `begin_us`, in order of time, each
/// with what passed since the one before it ended [us].
inline std::vector<std::pair<TaskGraph::TaskId, double>> timed_path(const Schedule& schedule,
                                                                    TaskGraph::TaskId last,
                                                                    double begin_us) {
  std::vector<std::pair<TaskGraph::TaskId, double>> path;
  const auto chain = schedule.critical_path(last);
  double after = schedule.end_us[last];
  for (std::size_t i = 0; i < chain.size() && after > begin_us; ++i) {
    const bool is_first = i + 1 == chain.size();
    const double before = is_first ? begin_us : std::max(begin_us, schedule.end_us[chain[i + 1]]);
    if (after > before) path.emplace_back(chain[i], after - before);
    after = before;
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace perfmodel
