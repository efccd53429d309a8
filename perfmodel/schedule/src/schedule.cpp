#include "perfmodel/detail/schedule.hpp"

#include <algorithm>
#include <limits>

#include "task_order.hpp"

namespace perfmodel {

using TaskId = TaskGraph::TaskId;

TaskId TaskGraph::add_task(std::int32_t lane, double duration_us, double lane_gap_us,
                           std::int32_t op, std::int32_t term) {
  PERFMODEL_CHECK(lane >= kNoLane);
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
  TaskId& tail = lane_tail_[static_cast<std::size_t>(lane)];
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
  return static_cast<std::int32_t>(edges_.size()) - 1;
}

TaskId TaskGraph::last_on_lane(std::int32_t lane) const {
  return lane >= 0 && static_cast<std::size_t>(lane) < lane_tail_.size()
             ? lane_tail_[static_cast<std::size_t>(lane)]
             : -1;
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

namespace {

// The start of a task: of its lane and of each edge, the latest; of equal ones, the first.
struct Start {
  double us = 0;
  TaskId bound_by = -1;

  void wait_for(TaskId task, double ready_us) {
    if (ready_us < us || (ready_us == us && bound_by >= 0)) return;
    us = ready_us;
    bound_by = task;
  }
};

}  // namespace

Result<void> TaskGraph::check_times() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto name = [&](std::size_t task) {
    return "task " + std::to_string(task) + " of op " + std::to_string(op_[task]);
  };
  for (std::size_t i = 0; i < size(); ++i) {
    if (duration_us_[i] >= 0 && duration_us_[i] < kInfinity && lane_gap_us_[i] < kInfinity)
      continue;
    return fail(ErrorCode::kImpossible,
                "expected a finite duration of at least 0 us and a finite gap, found " +
                    std::to_string(duration_us_[i]) + " and " + std::to_string(lane_gap_us_[i]) +
                    " for " + name(i));
  }
  for (const Edge& edge : edges_) {
    if (edge.lag_us < kInfinity) continue;
    return fail(ErrorCode::kImpossible, "expected a finite lag, found " +
                                            std::to_string(edge.lag_us) + " before " +
                                            name(static_cast<std::size_t>(edge.to)));
  }
  return {};
}

Result<Schedule> run_schedule(const TaskGraph& graph) {
  Schedule schedule;
  if (auto done = run_schedule(graph, schedule); !done) return Unexpected{done.error()};
  return schedule;
}

Result<void> run_schedule(const TaskGraph& graph, Schedule& schedule) {
  if (auto checked = graph.check_times(); !checked) return checked;
  const std::size_t count = graph.size();
  schedule.start_us.resize(count);
  schedule.end_us.resize(count);
  schedule.bound_by.resize(count);
  schedule.dropped_edges = 0;
  const double* const gap = graph.lane_gap_us_.data();
  const double* const duration = graph.duration_us_.data();
  const TaskId* const lane_previous = graph.lane_previous_.data();
  double* const ends = schedule.end_us.data();

  const auto from_lane = [&](std::size_t i) {
    Start start;
    if (const TaskId previous = lane_previous[i]; previous >= 0) {
      start.wait_for(previous, ends[previous] + gap[i]);
    }
    return start;
  };
  const auto place = [&](std::size_t i, const Start& start) {
    schedule.start_us[i] = start.us;
    ends[i] = start.us + duration[i];
    schedule.bound_by[i] = start.bound_by;
  };

  if (graph.forward_only_ && graph.sorted_by_target_) {
    // Edges lie in the order of their targets: everything is read once, front to back.
    const auto* edge = graph.edges_.data();
    const auto* const end = edge + graph.edges_.size();
    for (std::size_t i = 0; i < count; ++i) {
      Start start = from_lane(i);
      for (; edge != end && edge->to == static_cast<TaskId>(i); ++edge) {
        start.wait_for(edge->from, ends[edge->from] + edge->lag_us);
      }
      place(i, start);
    }
  } else {
    const auto order = TaskOrder::find(graph);
    if (!order) return Unexpected{order.error()};
    schedule.dropped_edges = order->dropped();
    for (std::size_t position = 0; position < count; ++position) {
      const std::size_t i = order->task(position);
      Start start = from_lane(i);
      for (const auto& edge : order->incoming(i)) {
        start.wait_for(edge.from, ends[edge.from] + edge.lag_us);
      }
      place(i, start);
    }
  }
  return {};
}

Result<std::vector<double>> slack_us(const TaskGraph& graph, const Schedule& schedule,
                                     TaskId target) {
  PERFMODEL_CHECK(target >= 0 && static_cast<std::size_t>(target) < graph.size());
  const auto order = TaskOrder::find(graph);
  if (!order) return Unexpected{order.error()};
  // The latest end of each task that leaves the end of `target` where it is, found from the back.
  std::vector<double> latest(graph.size(), std::numeric_limits<double>::infinity());
  latest[static_cast<std::size_t>(target)] = schedule.end_us[static_cast<std::size_t>(target)];
  for (std::size_t position = graph.size(); position-- > 0;) {
    const std::size_t i = order->task(position);
    const double latest_start = latest[i] - graph.duration_us_[i];
    const auto hold = [&](TaskId from, double lag) {
      double& end = latest[static_cast<std::size_t>(from)];
      end = std::min(end, latest_start - lag);
    };
    if (graph.lane_previous_[i] >= 0) hold(graph.lane_previous_[i], graph.lane_gap_us_[i]);
    for (const auto& edge : order->incoming(i)) hold(edge.from, edge.lag_us);
  }
  for (std::size_t i = 0; i < latest.size(); ++i) {
    latest[i] = std::max(0.0, latest[i] - schedule.end_us[i]);
  }
  return latest;
}

std::vector<TaskId> Schedule::critical_path(TaskId task) const {
  std::vector<TaskId> path;
  for (; task >= 0; task = bound_by[static_cast<std::size_t>(task)]) path.push_back(task);
  return path;
}

double Schedule::makespan_us() const {
  return end_us.empty() ? 0 : *std::max_element(end_us.begin(), end_us.end());
}

double union_us(std::vector<std::pair<double, double>> intervals) {
  std::sort(intervals.begin(), intervals.end());
  double length = 0, covered_to = -std::numeric_limits<double>::infinity();
  for (const auto& [start, end] : intervals) {
    const double from = std::max(start, covered_to);
    if (end <= from) continue;
    length += end - from;
    covered_to = end;
  }
  return length;
}

double busy_us(const Schedule& schedule, std::span<const TaskId> tasks) {
  std::vector<std::pair<double, double>> intervals;
  intervals.reserve(tasks.size());
  for (TaskId task : tasks) {
    const auto i = static_cast<std::size_t>(task);
    intervals.emplace_back(schedule.start_us[i], schedule.end_us[i]);
  }
  return union_us(std::move(intervals));
}

}  // namespace perfmodel
