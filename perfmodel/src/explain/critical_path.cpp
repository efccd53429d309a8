#include "perfmodel/detail/critical_path.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

double end_of(const Schedule& schedule, TaskId task) {
  return task < 0 ? 0 : schedule.end_us[task];
}

struct PathGroup {
  CriticalPath::Step step;
  TaskId example = -1;
  std::vector<std::int32_t> terms;  // terms of its tasks
};

// The tasks that become free with a step.
class FreedTasks {
 public:
  FreedTasks(const TaskGraph& graph, const TaskNames& names)
      : graph_(graph),
        over_ranks_(names.op_key != nullptr),
        key_(over_ranks_ ? names.op_key : names.key) {}

  /// Adds the group of the next step: 0, 1, ...
  void add(const PathGroup& group) {
    wanted_.emplace(key_(group.example), Wanted{group.terms, tasks_.size()});
    tasks_.emplace_back();
  }

  void find() {
    for (std::size_t i = 0; i < graph_.size(); ++i) {
      const auto task = static_cast<TaskId>(i);
      const auto [begin, end] = wanted_.equal_range(key_(task));
      for (auto at = begin; at != end; ++at) {
        const Wanted& wanted = at->second;
        if (!over_ranks_ || std::ranges::count(wanted.terms, graph_.term(task)) > 0) {
          tasks_[wanted.step].push_back(task);
        }
      }
    }
  }

  const std::vector<TaskId>& of(std::size_t step) const { return tasks_[step]; }

 private:
  struct Wanted {
    std::vector<std::int32_t> terms;
    std::size_t step;
  };
  const TaskGraph& graph_;
  bool over_ranks_;
  const std::function<std::uint64_t(TaskId)>& key_;
  std::unordered_multimap<std::uint64_t, Wanted> wanted_;
  std::vector<std::vector<TaskId>> tasks_;
};

}  // namespace

Result<CriticalPath> critical_path(const TaskGraph& graph, const Schedule& schedule, TaskId first,
                                   TaskId last, const TaskNames& names,
                                   const CriticalPathOptions& options) {
  CriticalPath path;
  const auto begin_of = [&](const Schedule& of) {
    if (first < 0) return 0.0;
    return options.from_start ? of.start_us[first] : end_of(of, first);
  };
  const double begin = begin_of(schedule), end = end_of(schedule, last);
  path.step_us = end - begin;
  PERFMODEL_TRY(slack, slack_us(graph, schedule, last));

  std::unordered_map<std::uint64_t, PathGroup> groups;
  const auto group_of = [&](TaskId task) -> PathGroup& {
    const auto [at, added] = groups.try_emplace(names.key(task));
    if (added) {
      at->second.example = task;
      at->second.step.slack_us = std::numeric_limits<double>::infinity();
    }
    auto& terms = at->second.terms;
    if (std::ranges::find(terms, graph.term(task)) == terms.end()) {
      terms.push_back(graph.term(task));
    }
    return at->second;
  };
  // A task may start before the one that binds it has ended (negative lag): its time is not counted
  // twice.
  double until = end;
  for (TaskId task : schedule.critical_path(last)) {
    if (until <= begin) break;
    const double from = schedule.bound_by[task] < 0 ? schedule.start_us[task]
                                                    : end_of(schedule, schedule.bound_by[task]);
    auto& step = group_of(task).step;
    step.us += until - std::clamp(from, begin, until);
    until = std::min(until, from);
    step.slack_us = std::min(step.slack_us, (*slack)[task]);
    ++step.count;
  }
  for (std::size_t i = 0; i < graph.size(); ++i) {
    if (schedule.end_us[i] <= begin || schedule.start_us[i] >= end) continue;
    const auto task = static_cast<TaskId>(i);
    if (graph.duration_us(task) <= 0) continue;
    auto& step = group_of(task).step;
    step.own_us += graph.duration_us(task);
    step.slack_us = std::min(step.slack_us, (*slack)[i]);
  }

  std::map<std::string, double> shares;
  std::vector<std::pair<std::uint64_t, const PathGroup*>> on_path, beside;
  for (auto& [key, group] : groups) {
    group.step.op = names.op(group.example);
    group.step.category = names.category(group.example);
    (group.step.count > 0 ? on_path : beside).emplace_back(key, &group);
    if (group.step.count > 0) shares[group.step.category] += group.step.us;
  }
  for (auto& [category, us] : shares) path.shares.push_back({category, us});
  std::stable_sort(path.shares.begin(), path.shares.end(),
                   [](const auto& a, const auto& b) { return a.us > b.us; });
  const auto longest_first = [](auto& list, auto length) {
    std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
      const double x = length(a.second->step), y = length(b.second->step);
      return x != y ? x > y : a.second->example < b.second->example;
    });
  };
  longest_first(on_path, [](const auto& step) { return step.us; });
  longest_first(beside, [](const auto& step) { return step.own_us; });
  for (const auto& [key, group] : on_path) path.steps.push_back(group->step);
  beside.resize(std::min(beside.size(), options.off_path));
  for (const auto& [key, group] : beside) path.off_path.push_back(group->step);

  const std::size_t asked = std::min(options.what_if, on_path.size());
  if (asked == 0) return path;
  FreedTasks freed(graph, names);
  for (std::size_t i = 0; i < asked; ++i) freed.add(*on_path[i].second);
  freed.find();
  TaskGraph changed = graph;
  Schedule again;
  for (std::size_t i = 0; i < asked; ++i) {
    const auto& tasks = freed.of(i);
    for (TaskId task : tasks) changed.set_duration_us(task, 0);
    PERFMODEL_TRY_TO(run_schedule(changed, again));
    path.steps[i].step_if_free_us = end_of(again, last) - begin_of(again);
    for (TaskId task : tasks) changed.set_duration_us(task, graph.duration_us(task));
  }
  return path;
}

}  // namespace perfmodel
