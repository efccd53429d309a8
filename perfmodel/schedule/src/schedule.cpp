#include "perfmodel/schedule/schedule.hpp"

#include <algorithm>

namespace perfmodel {

TaskGraph::TaskId TaskGraph::add_task(std::int32_t lane, double duration_us, double lane_gap_us,
                                      std::int32_t op, std::int32_t term) {
  PERFMODEL_CHECK(lane >= 0);
  const auto id = static_cast<TaskId>(duration_us_.size());
  if (static_cast<std::size_t>(lane) >= lane_tail_.size()) {
    lane_tail_.resize(static_cast<std::size_t>(lane) + 1, -1);
  }
  duration_us_.push_back(duration_us);
  lane_gap_us_.push_back(lane_gap_us);
  lane_.push_back(lane);
  op_.push_back(op);
  term_.push_back(term);
  TaskId& tail = lane_tail_[static_cast<std::size_t>(lane)];
  lane_previous_.push_back(tail);
  tail = id;
  return id;
}

void TaskGraph::add_edge(TaskId from, TaskId to, double lag_us) {
  if (from < 0) return;
  forward_only_ &= from < to;
  edges_.push_back({from, to, lag_us});
}

TaskGraph::TaskId TaskGraph::last_on_lane(std::int32_t lane) const {
  return static_cast<std::size_t>(lane) < lane_tail_.size()
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

using TaskId = TaskGraph::TaskId;

// Kahn's algorithm over lane order and edges; shorter than the number of tasks if there is a cycle.
template <class Edges>
std::vector<TaskId> topological_order(const Edges& edges,
                                      const std::vector<TaskId>& lane_previous) {
  const std::size_t count = lane_previous.size();
  std::vector<std::int32_t> open(count, 0);
  std::vector<std::vector<TaskId>> successors(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (lane_previous[i] < 0) continue;
    ++open[i];
    successors[static_cast<std::size_t>(lane_previous[i])].push_back(static_cast<TaskId>(i));
  }
  for (const auto& edge : edges) {
    ++open[static_cast<std::size_t>(edge.to)];
    successors[static_cast<std::size_t>(edge.from)].push_back(edge.to);
  }
  std::vector<TaskId> order;
  order.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (open[i] == 0) order.push_back(static_cast<TaskId>(i));
  }
  for (std::size_t next = 0; next < order.size(); ++next) {
    for (TaskId to : successors[static_cast<std::size_t>(order[next])]) {
      if (--open[static_cast<std::size_t>(to)] == 0) order.push_back(to);
    }
  }
  return order;
}

}  // namespace

Result<Schedule> run_schedule(const TaskGraph& graph) {
  const std::size_t count = graph.size();
  // Incoming edges per task, counted and placed (compressed rows).
  std::vector<std::int32_t> first(count + 1, 0);
  for (const auto& edge : graph.edges_) ++first[static_cast<std::size_t>(edge.to) + 1];
  for (std::size_t i = 0; i < count; ++i) first[i + 1] += first[i];
  std::vector<std::int32_t> incoming(graph.edges_.size());
  {
    std::vector<std::int32_t> next(first.begin(), first.end() - 1);
    for (std::size_t e = 0; e < graph.edges_.size(); ++e) {
      incoming[static_cast<std::size_t>(next[static_cast<std::size_t>(graph.edges_[e].to)]++)] =
          static_cast<std::int32_t>(e);
    }
  }
  std::vector<TaskId> order;
  if (!graph.forward_only_) {
    order = topological_order(graph.edges_, graph.lane_previous_);
    if (order.size() < count) {
      std::vector<bool> placed(count, false);
      for (TaskId task : order) placed[static_cast<std::size_t>(task)] = true;
      const auto stuck = std::find(placed.begin(), placed.end(), false) - placed.begin();
      return fail(ErrorCode::kImpossible,
                  "expected an acyclic schedule, found a cycle through task " +
                      std::to_string(stuck) + " of op " +
                      std::to_string(graph.op(static_cast<TaskId>(stuck))));
    }
  }
  Schedule schedule;
  schedule.start_us.resize(count);
  schedule.end_us.resize(count);
  schedule.bound_by.resize(count);
  for (std::size_t position = 0; position < count; ++position) {
    const std::size_t i = order.empty() ? position : static_cast<std::size_t>(order[position]);
    double start = 0;
    TaskId bound = -1;
    if (const TaskId previous = graph.lane_previous_[i]; previous >= 0) {
      start = schedule.end_us[static_cast<std::size_t>(previous)] + graph.lane_gap_us_[i];
      bound = previous;
    }
    for (std::int32_t e = first[i]; e < first[i + 1]; ++e) {
      const auto& edge =
          graph.edges_[static_cast<std::size_t>(incoming[static_cast<std::size_t>(e)])];
      const double ready = schedule.end_us[static_cast<std::size_t>(edge.from)] + edge.lag_us;
      if (ready > start || bound < 0) {
        start = std::max(start, ready);
        bound = edge.from;
      }
    }
    schedule.start_us[i] = start;
    schedule.end_us[i] = start + graph.duration_us_[i];
    schedule.bound_by[i] = bound;
  }
  return schedule;
}

std::vector<TaskId> Schedule::critical_path(TaskId task) const {
  std::vector<TaskId> path;
  for (; task >= 0; task = bound_by[static_cast<std::size_t>(task)]) path.push_back(task);
  return path;
}

double Schedule::makespan_us() const {
  return end_us.empty() ? 0 : *std::max_element(end_us.begin(), end_us.end());
}

double busy_us(const Schedule& schedule, std::span<const TaskId> tasks) {
  std::vector<std::pair<double, double>> intervals;
  intervals.reserve(tasks.size());
  for (TaskId task : tasks) {
    const auto i = static_cast<std::size_t>(task);
    intervals.emplace_back(schedule.start_us[i], schedule.end_us[i]);
  }
  std::sort(intervals.begin(), intervals.end());
  double busy = 0, covered_to = -1e300;
  for (const auto& [start, end] : intervals) {
    if (end <= covered_to) continue;
    busy += end - std::max(start, covered_to);
    covered_to = end;
  }
  return busy;
}

}  // namespace perfmodel
