#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// A task occupies one lane for its duration. Tasks of a lane run in the order in which they were
/// added (program order of a thread, launch order of a stream).
///
/// start = max(0, end of the lane's previous task + lane_gap, end of each predecessor + its lag).
/// Times in microseconds.
class TaskGraph {
 public:
  using TaskId = std::int32_t;

  /// A task on this lane waits for its predecessors alone (a meeting point, a fixed delay).
  static constexpr std::int32_t kNoLane = -1;

  enum class EdgeKind : std::uint8_t {
    kCertain,
    kInferred,  ///< a guess: dropped, and counted, where it would close a cycle
  };

  /// `op` and `term` are the caller's tags, handed back in reports.
  TaskId add_task(std::int32_t lane, double duration_us, double lane_gap_us = 0,
                  std::int32_t op = -1, std::int32_t term = 0);

  /// `to` starts no earlier than the end of `from` plus `lag_us` (which may be negative). Edges may
  /// point to tasks added earlier; then a topological order is found first. Returns the edge's
  /// number; -1 if `from` is -1, which adds nothing.
  std::int32_t add_edge(TaskId from, TaskId to, double lag_us = 0,
                        EdgeKind kind = EdgeKind::kCertain);

  struct Edge {
    TaskId from = -1, to = -1;
    double lag_us = 0;
  };
  /// In the order of addition; lane order is none of them.
  std::span<const Edge> edge_list() const { return edges_; }
  TaskId lane_previous(TaskId task) const { return lane_previous_[task]; }

  /// Minus infinity: as if the edge were not there, but in a cycle it still counts.
  void set_lag_us(std::int32_t edge, double us) {
    edges_[edge].lag_us = us;
    note(is_gap(us));
  }

  /// Last task added to a lane, or -1.
  TaskId last_on_lane(std::int32_t lane) const;

  std::size_t size() const { return duration_us_.size(); }
  std::size_t edges() const { return edges_.size(); }
  std::int32_t lanes() const { return static_cast<std::int32_t>(lane_tail_.size()); }
  double duration_us(TaskId task) const { return duration_us_[task]; }
  double lane_gap_us(TaskId task) const { return lane_gap_us_[task]; }
  void set_duration_us(TaskId task, double us) {
    duration_us_[task] = us;
    note(is_duration(us));
  }
  std::int32_t lane(TaskId task) const { return lane_[task]; }
  std::int32_t op(TaskId task) const { return op_[task]; }
  std::int32_t term(TaskId task) const { return term_[task]; }
  void reserve(std::size_t tasks);
  /// Appends the tasks from `first` and the edges from `first_edge` on once more: each follows the
  /// same tasks as before, as many tasks later. No edge may be inferred, and before each task its
  /// lane has another.
  void repeat(TaskId first, std::size_t first_edge);

  // The whole of it, for passes over all tasks.

  std::span<const double> durations_us() const { return duration_us_; }
  std::span<const double> lane_gaps_us() const { return lane_gap_us_; }
  std::span<const TaskId> lane_previous() const { return lane_previous_; }
  /// Positions in edge_list().
  std::span<const std::int32_t> inferred_edges() const { return inferred_; }
  bool forward_only() const { return forward_only_; }  ///< every edge points to a later task
  /// Edges were added in the order of their targets.
  bool sorted_by_target() const { return sorted_by_target_; }

  /// Errors: a duration that is negative or no finite number, a gap or lag that is NaN or infinite
  /// upwards.
  Result<void> check_times() const;

 private:
  static bool is_gap(double us) { return us < std::numeric_limits<double>::infinity(); }
  static bool is_duration(double us) { return us >= 0 && is_gap(us); }
  void note(bool good) { times_are_good_ &= good; }

  std::vector<double> duration_us_, lane_gap_us_;
  std::vector<std::int32_t> lane_, op_, term_, lane_previous_;
  std::vector<Edge> edges_;             // in the order of addition
  std::vector<std::int32_t> inferred_;  // positions in edges_
  std::vector<TaskId> lane_tail_;
  bool forward_only_ = true, sorted_by_target_ = true;
  bool times_are_good_ = true;  // false once a bad one came, which may have been replaced since
};

}  // namespace perfmodel
