#include "perfmodel/detail/task_graph.hpp"

#include <algorithm>
#include <string>

namespace perfmodel {

using TaskId = TaskGraph::TaskId;

TaskId TaskGraph::add_task(std::int32_t lane, double duration_us, double lane_gap_us,
                           std::int32_t op, std::int32_t term) {
  PERFMODEL_CHECK(lane >= kNoLane);
  note(is_duration(duration_us) && is_gap(lane_gap_us));
  const auto id = static_cast<TaskId>(duration_us_.size());
  duration_us_.push_back(duration_us);
  lane_gap_us_.push_back(lane_gap_us);
  lane_.push_back(lane);
  op_.push_back(op);
  term_.push_back(term);
  if (lane == kNoLane) {
    lane_previous_.push_back(-1);
    return id;
  }
  if (static_cast<std::size_t>(lane) >= lane_tail_.size()) {
    lane_tail_.resize(static_cast<std::size_t>(lane) + 1, -1);
  }
  TaskId& tail = lane_tail_[lane];
  lane_previous_.push_back(tail);
  tail = id;
  return id;
}

std::int32_t TaskGraph::add_edge(TaskId from, TaskId to, double lag_us, EdgeKind kind) {
  if (from < 0) return -1;
  const auto count = static_cast<TaskId>(size());
  PERFMODEL_CHECK(from < count && to >= 0 && to < count);
  forward_only_ &= from < to;
  sorted_by_target_ &= edges_.empty() || edges_.back().to <= to;
  if (kind == EdgeKind::kInferred) inferred_.push_back(static_cast<std::int32_t>(edges_.size()));
  edges_.push_back({from, to, lag_us});
  note(is_gap(lag_us));
  return static_cast<std::int32_t>(edges_.size()) - 1;
}

TaskId TaskGraph::last_on_lane(std::int32_t lane) const {
  return lane >= 0 && static_cast<std::size_t>(lane) < lane_tail_.size() ? lane_tail_[lane] : -1;
}

void TaskGraph::reserve(std::size_t tasks) {
  duration_us_.reserve(tasks);
  lane_gap_us_.reserve(tasks);
  lane_.reserve(tasks);
  op_.reserve(tasks);
  term_.reserve(tasks);
  lane_previous_.reserve(tasks);
  edges_.reserve(tasks);
}

void TaskGraph::repeat(TaskId first, std::size_t first_edge) {
  PERFMODEL_CHECK(inferred_.empty());
  const std::size_t end_edge = edges();
  const auto end = static_cast<TaskId>(size()), later = end - first;
  const auto append = [&](auto& facts) {
    facts.resize(end + later);
    std::copy(facts.begin() + first, facts.begin() + end, facts.begin() + end);
  };
  append(duration_us_);
  append(lane_gap_us_);
  append(lane_);
  append(op_);
  append(term_);
  append(lane_previous_);
  for (TaskId i = end; i < end + later; ++i) {
    if (lane_[i] != kNoLane) lane_previous_[i] += later;
  }
  for (std::size_t e = first_edge; e < end_edge; ++e) {
    edges_.push_back({edges_[e].from + later, edges_[e].to + later, edges_[e].lag_us});
  }
  for (TaskId& tail : lane_tail_) {
    if (tail >= first) tail += later;
  }
}

Result<void> TaskGraph::check_times() const {
  if (times_are_good_) return {};
  const auto name = [&](std::size_t task) {
    return "task " + std::to_string(task) + " of op " + std::to_string(op_[task]);
  };
  for (std::size_t i = 0; i < size(); ++i) {
    if (is_duration(duration_us_[i]) && is_gap(lane_gap_us_[i])) continue;
    return decline("expected a finite duration of at least 0 us and a finite gap, found " +
                   std::to_string(duration_us_[i]) + " and " + std::to_string(lane_gap_us_[i]) +
                   " for " + name(i));
  }
  for (const Edge& edge : edges_) {
    if (is_gap(edge.lag_us)) continue;
    return decline("expected a finite lag, found " + std::to_string(edge.lag_us) + " before " +
                   name(static_cast<std::size_t>(edge.to)));
  }
  return {};
}

}  // namespace perfmodel
