#include "perfmodel/critical_path.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

double end_of(const Schedule& schedule, TaskId task) {
  return task < 0 ? 0 : schedule.end_us[static_cast<std::size_t>(task)];
}

struct Group {
  CriticalPath::Step step;
  TaskId example = -1;
};

}  // namespace

Result<CriticalPath> critical_path(const TaskGraph& graph, const Schedule& schedule, TaskId first,
                                   TaskId last, const TaskNames& names,
                                   const CriticalPathOptions& options) {
  CriticalPath path;
  const auto begin_of = [&](const Schedule& of) {
    if (first < 0) return 0.0;
    return options.from_start ? of.start_us[static_cast<std::size_t>(first)] : end_of(of, first);
  };
  const double begin = begin_of(schedule), end = end_of(schedule, last);
  path.step_us = end - begin;
  const auto slack = slack_us(graph, schedule, last);
  if (!slack) return Unexpected{slack.error()};

  std::unordered_map<std::uint64_t, Group> groups;
  const auto group_of = [&](TaskId task) -> Group& {
    const auto [at, added] = groups.try_emplace(names.key(task));
    if (added) {
      at->second.example = task;
      at->second.step.slack_us = std::numeric_limits<double>::infinity();
    }
    return at->second;
  };
  // A task may start before the one that binds it has ended (negative lag): what was counted for it
  // is not counted again.
  double until = end;
  for (TaskId task : schedule.critical_path(last)) {
    if (until <= begin) break;
    const auto i = static_cast<std::size_t>(task);
    const double from =
        schedule.bound_by[i] < 0 ? schedule.start_us[i] : end_of(schedule, schedule.bound_by[i]);
    auto& step = group_of(task).step;
    step.us += until - std::clamp(from, begin, until);
    until = std::min(until, from);
    step.slack_us = std::min(step.slack_us, (*slack)[i]);
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
  std::vector<std::pair<std::uint64_t, const Group*>> on_path, beside;
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
  std::unordered_map<std::uint64_t, std::vector<TaskId>> members;
  for (std::size_t i = 0; i < asked; ++i) members[on_path[i].first];
  for (std::size_t i = 0; i < graph.size(); ++i) {
    const auto at = members.find(names.key(static_cast<TaskId>(i)));
    if (at != members.end()) at->second.push_back(static_cast<TaskId>(i));
  }
  TaskGraph changed = graph;
  Schedule again;
  for (std::size_t i = 0; i < asked; ++i) {
    const auto& tasks = members[on_path[i].first];
    for (TaskId task : tasks) changed.set_duration_us(task, 0);
    if (auto done = run_schedule(changed, again); !done) return Unexpected{done.error()};
    path.steps[i].step_if_free_us = end_of(again, last) - begin_of(again);
    for (TaskId task : tasks) changed.set_duration_us(task, graph.duration_us(task));
  }
  return path;
}

}  // namespace perfmodel
