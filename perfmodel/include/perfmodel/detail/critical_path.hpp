#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "perfmodel/detail/schedule.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Names of tasks in a critical path. Tasks with the same key are one step.
struct TaskNames {
  std::function<std::uint64_t(TaskGraph::TaskId)> key;
  std::function<std::string(TaskGraph::TaskId)> op;        ///< "aten::mm"
  std::function<std::string(TaskGraph::TaskId)> category;  ///< "T4", "gemm", ...
  /// The op's name as a number that is the same on every rank; empty: there is one rank.
  std::function<std::uint64_t(TaskGraph::TaskId)> op_key = {};
};

struct CriticalPathOptions {
  std::size_t what_if = 10;  ///< longest steps for which the schedule is run again without them
  std::size_t off_path = 10;
  bool from_start = false;  ///< the step begins with the start of `first`, not with its end
};

/// Walks back from the end of `last` to the end of `first` (-1: the start of the schedule). Time
/// between two tasks of the path (latency, gap, hand-over) counts as the later one's.
///
/// "If free": the time from the end of `first` to the end of `last` in a schedule whose tasks of
/// that step take no time, inside and outside of the window and on every rank. Ranks run one
/// program, and an op that got faster on one rank alone would only wait for the others.
Result<CriticalPath> critical_path(const TaskGraph& graph, const Schedule& schedule,
                                   TaskGraph::TaskId first, TaskGraph::TaskId last,
                                   const TaskNames& names, const CriticalPathOptions& options = {});

}  // namespace perfmodel
