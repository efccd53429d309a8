#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "perfmodel/detail/job_timeline.hpp"
#include "perfmodel/graph/chakra.hpp"
#include "record/match_collectives.hpp"
#include "replay_tasks.hpp"

namespace perfmodel {

/// A replay that has been scheduled.
struct ScheduledReplay {
  std::span<const Trace> traces;
  std::span<const ReplayTasks> ranks;
  const TaskGraph& graph;
  const Schedule& schedule;
  /// First task of each rank; one entry after the last rank's.
  std::span<const TaskGraph::TaskId> first_task;

  std::size_t rank_of(TaskGraph::TaskId task) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(first_task, task) -
                                    first_task.begin()) -
           1;
  }
};

/// Ops, annotations and calls at their replayed times, device work, launches, and the critical path
/// that ends with `last`.
JobTimeline replay_timeline(const ScheduledReplay& replay, TaskGraph::TaskId last);

/// One trace per rank; `collectives` per rank as they were matched. Error: collectives of unknown
/// size, which a simulator would take for nothing.
Result<std::vector<ChakraTrace>> replay_chakra(
    const ScheduledReplay& replay, std::span<const std::vector<RankCollective>> collectives);

}  // namespace perfmodel
