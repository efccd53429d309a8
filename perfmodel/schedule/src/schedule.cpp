#include "perfmodel/detail/schedule.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "task_order.hpp"

namespace perfmodel {

using TaskId = TaskGraph::TaskId;

namespace {

// The start of a task: of its lane and of each edge, the latest; of equal ones, the first.
struct Start {
  double us = 0;
  TaskId bound_by = -1;

  void wait_for(TaskId task, const double* ends_us, double lag_us) {
    const double ready_us = ends_us[task] + lag_us;
    if (ready_us < us || (ready_us == us && bound_by >= 0)) return;
    us = ready_us;
    bound_by = task;
  }
};

struct VariantStarts {
  ScheduleVariants::Times us{};

  void wait_for(TaskId task, const ScheduleVariants::Times* ends_us, double lag_us) {
    const ScheduleVariants::Times ends = ends_us[task];
    for (std::size_t v = 0; v < us.size(); ++v) us[v] = std::max(us[v], ends[v] + lag_us);
  }
};

// Places each task after what it waits for: `place(task, start)` sets its end. Returns the number
// of dropped edges.
template <class Start, class Ends, class Place>
Result<std::size_t> place_tasks(const TaskGraph& graph, const TaskOrder* order, const Ends* ends_us,
                                Place&& place) {
  PERFMODEL_TRY_TO(graph.check_times());
  const std::size_t count = graph.size();
  const double* const gap = graph.lane_gaps_us().data();
  const TaskId* const lane_previous = graph.lane_previous().data();
  const auto from_lane = [&](std::size_t i) {
    Start start;
    if (const TaskId previous = lane_previous[i]; previous >= 0) {
      start.wait_for(previous, ends_us, gap[i]);
    }
    return start;
  };

  if (graph.forward_only() && graph.sorted_by_target()) {
    // Edges lie in the order of their targets: everything is read once, front to back.
    const auto* edge = graph.edge_list().data();
    const auto* const end = edge + graph.edges();
    for (std::size_t i = 0; i < count; ++i) {
      Start start = from_lane(i);
      for (; edge != end && edge->to == static_cast<TaskId>(i); ++edge) {
        start.wait_for(edge->from, ends_us, edge->lag_us);
      }
      place(i, start);
    }
    return 0;
  }
  std::optional<TaskOrder> own;
  if (order == nullptr) {
    PERFMODEL_TRY(found, TaskOrder::find(graph));
    order = &own.emplace(std::move(*found));
  }
  const auto edges = graph.edge_list();
  for (std::size_t position = 0; position < count; ++position) {
    const std::size_t i = order->task(position);
    Start start = from_lane(i);
    for (const auto& edge : order->incoming(i)) {
      start.wait_for(edge.from, ends_us, edges[edge.edge].lag_us);
    }
    place(i, start);
  }
  return order->dropped();
}

}  // namespace

Result<Schedule> run_schedule(const TaskGraph& graph, const TaskOrder* order) {
  Schedule schedule;
  PERFMODEL_TRY_TO(run_schedule(graph, schedule, order));
  return schedule;
}

Result<void> run_schedule(const TaskGraph& graph, Schedule& schedule, const TaskOrder* order) {
  const std::size_t count = graph.size();
  schedule.start_us.resize(count);
  schedule.end_us.resize(count);
  schedule.bound_by.resize(count);
  double* const starts = schedule.start_us.data();
  double* const ends = schedule.end_us.data();
  TaskId* const bound_by = schedule.bound_by.data();
  const double* const duration = graph.durations_us().data();
  PERFMODEL_TRY(dropped,
                place_tasks<Start>(graph, order, ends, [=](std::size_t i, const Start& start) {
                  starts[i] = start.us;
                  ends[i] = start.us + duration[i];
                  bound_by[i] = start.bound_by;
                }));
  schedule.dropped_edges = *dropped;
  return {};
}

Result<void> run_schedule(const TaskGraph& graph, ScheduleVariants& variants) {
  PERFMODEL_CHECK(std::ssize(variants.factors) >= graph.lanes());
  variants.end_us.resize(graph.size());
  const auto place = [&](std::size_t i, const VariantStarts& start) {
    const auto task = static_cast<TaskId>(i);
    const std::int32_t lane = graph.lane(task);
    for (std::size_t v = 0; v < start.us.size(); ++v) {
      const double factor = lane < 0 ? 1 : variants.factors[lane][v];
      variants.end_us[i][v] = start.us[v] + factor * graph.duration_us(task);
    }
    const auto wanted = variants.start_us.find(task);
    if (wanted != variants.start_us.end()) wanted->second = start.us;
  };
  PERFMODEL_TRY_TO(place_tasks<VariantStarts>(graph, nullptr, variants.end_us.data(), place));
  return {};
}

Result<std::vector<double>> slack_us(const TaskGraph& graph, const Schedule& schedule,
                                     TaskId target) {
  PERFMODEL_CHECK(target >= 0 && static_cast<std::size_t>(target) < graph.size());
  PERFMODEL_TRY(order, TaskOrder::find(graph));
  // The latest end of each task that leaves the end of `target` where it is, found from the back.
  std::vector<double> latest(graph.size(), std::numeric_limits<double>::infinity());
  latest[target] = schedule.end_us[target];
  for (std::size_t position = graph.size(); position-- > 0;) {
    const std::size_t i = order->task(position);
    const double latest_start = latest[i] - graph.durations_us()[i];
    const auto hold = [&](TaskId from, double lag) {
      double& end = latest[from];
      end = std::min(end, latest_start - lag);
    };
    if (const TaskId previous = graph.lane_previous()[i]; previous >= 0) {
      hold(previous, graph.lane_gaps_us()[i]);
    }
    for (const auto& edge : order->incoming(i)) {
      hold(edge.from, graph.edge_list()[edge.edge].lag_us);
    }
  }
  for (std::size_t i = 0; i < latest.size(); ++i) {
    latest[i] = std::max(0.0, latest[i] - schedule.end_us[i]);
  }
  return latest;
}

std::vector<TaskId> Schedule::critical_path(TaskId task) const {
  std::vector<TaskId> path;
  for (; task >= 0; task = bound_by[task]) path.push_back(task);
  return path;
}

double Schedule::makespan_us() const {
  return end_us.empty() ? 0 : *std::max_element(end_us.begin(), end_us.end());
}

double union_us(std::vector<std::pair<double, double>> intervals) {
  // Work that was folded into a period is two sorted lists, one after the other.
  const auto second = std::is_sorted_until(intervals.begin(), intervals.end());
  if (std::is_sorted(second, intervals.end())) {
    std::inplace_merge(intervals.begin(), second, intervals.end());
  } else {
    std::sort(intervals.begin(), intervals.end());
  }
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
