#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfmodel/detail/task_graph.hpp"

namespace perfmodel {

/// When everything happens.
struct Schedule {
  std::vector<double> start_us, end_us;
  /// The task whose end (plus gap or lag) fixed the start; -1: none did, it started at 0.
  std::vector<TaskGraph::TaskId> bound_by;
  std::size_t dropped_edges = 0;  ///< inferred edges that closed a cycle

  /// From `task` back to the first: the chain of tasks that explains when `task` ended.
  std::vector<TaskGraph::TaskId> critical_path(TaskGraph::TaskId task) const;

  double makespan_us() const;
};

class TaskOrder;

/// Longest-path pass. O(tasks + edges + length of each cycle that is broken): tasks are visited in
/// the order of addition if all edges point forward, else in topological order. Errors: a cycle
/// without inferred edges (names its tasks), a duration that is negative or no finite number, a gap
/// or lag that is NaN or infinite upwards. `order`: of a graph that differs in times at most; null:
/// still to be found.
Result<Schedule> run_schedule(const TaskGraph& graph, const TaskOrder* order = nullptr);

/// The same into an existing schedule, whose memory is used again.
Result<void> run_schedule(const TaskGraph& graph, Schedule& schedule,
                          const TaskOrder* order = nullptr);

/// Times of the same tasks, their durations multiplied by several factors each. A graph may have
/// millions of tasks: nothing but the ends is kept of each.
struct ScheduleVariants {
  static constexpr std::size_t kCount = 4;
  using Times = std::array<double, kCount>;  ///< by variant
  std::vector<Times> factors;                ///< by lane: finite, at least 0; 1 without a lane
  std::vector<Times> end_us;                 ///< by task
  std::unordered_map<TaskGraph::TaskId, Times> start_us;  ///< only tasks that are keys here
};

/// Sets starts and ends as run_schedule does for each variant's durations, all in one pass.
Result<void> run_schedule(const TaskGraph& graph, ScheduleVariants& variants);

/// Per task: how much longer it could take without `target` ending later; infinite for tasks that
/// `target` does not depend on. The inferred edges dropped by the run are ignored here too.
Result<std::vector<double>> slack_us(const TaskGraph& graph, const Schedule& schedule,
                                     TaskGraph::TaskId target);

/// Length of the union of intervals [first, second); those that end before they begin are empty.
double union_us(std::vector<std::pair<double, double>> intervals);

/// Length of the union of [start, end) over `tasks`.
double busy_us(const Schedule& schedule, std::span<const TaskGraph::TaskId> tasks);

}  // namespace perfmodel
