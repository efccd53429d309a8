#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "perfmodel/detail/rank_report.hpp"
#include "perfmodel/detail/replay_result.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel {

/// The report of a replayed job, from the communication of its `ranks`. `steps_us` reads the step
/// of each rank from a schedule; other ranks wait for the `arrival_edges` of a rank. Errors:
/// run_schedule()'s.
inline Result<JobReport> replayed_job(
    const TaskGraph& graph, const Schedule& schedule, const std::vector<Replay::Rank>& ranks,
    const std::vector<std::vector<std::int32_t>>& arrival_edges,
    const std::function<std::vector<double>(const Schedule&)>& steps_us) {
  std::vector<RankReport> communication;
  for (const Replay::Rank& rank : ranks) communication.push_back(rank.communication);
  const auto steps_without = [&](const auto& ignored) -> Result<std::vector<double>> {
    TaskGraph freed = graph;
    for (std::size_t r = 0; r < ignored.size(); ++r) {
      if (!ignored[r]) continue;
      for (const std::int32_t edge : arrival_edges[r]) {
        freed.set_lag_us(edge, -std::numeric_limits<double>::infinity());
      }
    }
    return run_schedule(freed).map(steps_us);
  };
  return job_report(steps_us(schedule), communication, steps_without);
}

}  // namespace perfmodel
