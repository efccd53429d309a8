#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/detail/schedule.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// When a grid of ranks reaches what was asked for. Times in microseconds.
struct RankTimes {
  std::vector<double> end_us;      ///< per rank: latest end of its tasks
  std::vector<double> waiting_us;  ///< per rank: spent in collectives before their last rank came
};

/// Many ranks that run the same tasks: one task list for all of them, and per rank only the times.
/// Ranks differ by their start and their speed, and meet in collectives.
///
/// Memory: 8 bytes per task and rank; the ranks of a task lie side by side, so that each task is
/// one pass over an array.
class RankGrid {
 public:
  /// `one_rank` must outlive the grid; tasks on lane kNoLane are per rank as well.
  RankGrid(const TaskGraph& one_rank, std::size_t ranks);

  /// Divides the ranks into groups: `group_of_rank[r]` is a number of any kind, equal for ranks of
  /// one communicator. Returns the handle for add_collective.
  std::size_t add_communicator(const std::vector<std::int32_t>& group_of_rank);

  /// The task moves data between the ranks of each group: its duration begins when the last of
  /// them has started it.
  void add_collective(TaskGraph::TaskId task, std::size_t communicator);

  void set_start_us(std::size_t rank, double us) { start_us_[rank] = us; }
  /// Durations of this rank's tasks are multiplied by `factor`, collectives excepted.
  void set_slowdown(std::size_t rank, double factor) { slowdown_[rank] = factor; }

  /// Errors: those of run_schedule, a start or a slowdown that is no finite number, a slowdown
  /// below 0.
  Result<RankTimes> run() const;

 private:
  struct Communicator {
    std::vector<std::int32_t> group;  // per rank, dense
    std::size_t groups = 0;
  };
  const TaskGraph& graph_;
  std::size_t ranks_;
  std::vector<double> start_us_, slowdown_;
  std::vector<Communicator> communicators_;
  std::vector<std::int32_t> collective_;  // per task: communicator, or -1
};

}  // namespace perfmodel
