#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/optimize.hpp"
#include "predict/job_tasks.hpp"
#include "predict/meet_collectives.hpp"
#include "predict/paced_path.hpp"
#include "predict/pipeline.hpp"
#include "predict/predict_with.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

const std::map<Term, const char*> kHostParts = {
    {Term::kT1, "gaps between ops (T1)"},      {Term::kT2, "before the first launch (T2)"},
    {Term::kT3, "after the last launch (T3)"}, {Term::kT4, "launches (T4)"},
    {Term::kT5, "between launches (T5)"},      {Term::kTx, "ops without launches (TX)"},
};

std::string host_part(Term term) {
  const auto known = kHostParts.find(term);
  return known == kHostParts.end() ? "other host work" : known->second;
}

std::string device_part(const HostProgram& program, const Launch& launch) {
  if (!launch.is_collective()) return std::string(to_string(program.kernel(launch).family));
  const std::int32_t work = program.collective(launch).work;
  if (work >= 0) {
    const KernelWork& asked = program.comm_works[work];
    if (const auto* shape = std::get_if<CollectiveShape>(&asked.shape)) return shape->kind;
  }
  return "collectives";
}

/// Parts of a program that may be free, each with its instructions.
class FreeableParts {
 public:
  explicit FreeableParts(const HostProgram& program) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const auto& what = program.instructions[i].what;
      if (const auto* work = std::get_if<HostWork>(&what)) {
        add(host_part(work->term), i, Side::kHost, work->us);
      } else if (const auto* launch = std::get_if<Launch>(&what)) {
        add(host_part(Term::kT4), i, Side::kHost, launch->host_us);
        add(device_part(program, *launch), i, Side::kDevice, program.device_us(*launch));
      } else if (const auto* sync = std::get_if<Synchronisation>(&what)) {
        add(host_part(Term::kT4), i, Side::kHost, sync->host_us);
      }
    }
  }

  std::vector<std::string> names() const {
    std::vector<std::string> made;
    for (const auto& [name, part] : parts_) made.push_back(name);
    return made;
  }
  /// Time per pass.
  double total_us(const std::string& name) const { return parts_.at(name).total_us; }

  /// Parts that take less than this become one.
  void join_below(double least_us) {
    Part joined;
    for (auto part = parts_.begin(); part != parts_.end();) {
      if (part->second.total_us >= least_us) {
        ++part;
        continue;
      }
      joined.total_us += part->second.total_us;
      joined.places.insert(joined.places.end(), part->second.places.begin(),
                           part->second.places.end());
      part = parts_.erase(part);
    }
    if (!joined.places.empty()) parts_["all else"] = std::move(joined);
  }

  void free(const std::string& name, HostProgram& program) const {
    for (const Place& place : parts_.at(name).places) free_one(place, program);
  }

  enum class Side { kHost, kDevice };
  struct Place {
    std::size_t instruction;
    Side side;
    auto operator<=>(const Place&) const = default;
  };

  static void free_one(const Place& place, HostProgram& program) {
    auto& what = program.instructions[place.instruction].what;
    if (place.side == Side::kDevice) {
      program.kernel(std::get<Launch>(what)).price.time = Microseconds(0);
    } else if (auto* work = std::get_if<HostWork>(&what)) {
      work->us = 0;
    } else if (auto* launch = std::get_if<Launch>(&what)) {
      launch->host_us = 0;
    } else if (auto* sync = std::get_if<Synchronisation>(&what)) {
      sync->host_us = 0;
    }
  }

 private:
  struct Part {
    std::vector<Place> places;
    double total_us = 0;
  };

  void add(const std::string& name, std::size_t instruction, Side side, double us) {
    Part& part = parts_[name];
    part.places.push_back({instruction, side});
    part.total_us += us;
  }

  std::map<std::string, Part> parts_;
};

/// Schedules a rank's program in steady state, as it is or with parts of it free.
class FreedSchedules {
 public:
  FreedSchedules(RankProgram rank, std::int32_t meetings)
      : rank_(std::move(rank)), meetings_(meetings), parts_(rank_.program) {}

  FreeableParts& parts() { return parts_; }
  const FreeableParts& parts() const { return parts_; }

  Result<double> step_us(const std::vector<std::string>& free) {
    const std::set<std::string> names(free.begin(), free.end());
    if (const auto known = known_.find(names); known != known_.end()) return known->second;
    RankProgram rank = rank_;
    for (const std::string& name : free) parts_.free(name, rank.program);
    const auto step = step_of(rank, nullptr);
    if (step) known_[names] = *step;
    return step;
  }

  /// The step if everything on the critical path is free.
  Result<double> without_path_us() const {
    RankProgram rank = rank_;
    std::vector<FreeableParts::Place> path;
    PERFMODEL_TRY_TO(step_of(rank, &path));
    for (const auto& place : path) FreeableParts::free_one(place, rank.program);
    return step_of(rank, nullptr);
  }

 private:
  Result<double> step_of(const RankProgram& rank, std::vector<FreeableParts::Place>* path) const {
    JobTasks tasks({&rank, 1}, meetings_);
    std::vector<std::string> unsteady;
    PERFMODEL_TRY_TO(find_steady_state({&rank, 1}, tasks, unsteady));
    if (path) *path = path_of(tasks);
    return pass_us_per_step({&rank, 1}, tasks).front();
  }

  // Path of the last pass; a kernel on the path and the call that starts it are places of their
  // own.
  static std::vector<FreeableParts::Place> path_of(const JobTasks& tasks) {
    const ProgramTasks& own = *tasks.ranks[0];
    std::map<TaskId, std::int32_t> instructions;
    for (const auto& placed : own.last_pass()) {
      instructions[placed.task] = instructions[placed.arrival] = placed.instruction;
    }
    std::set<FreeableParts::Place> places;
    for (TaskId task : tasks.schedule.critical_path(paced_ends(tasks, 0).back())) {
      if (task < tasks.pass_begin) break;
      const auto at = instructions.find(task);
      if (at == instructions.end()) continue;
      const auto side =
          own.on_device(task) ? FreeableParts::Side::kDevice : FreeableParts::Side::kHost;
      places.insert({static_cast<std::size_t>(at->second), side});
    }
    return {places.begin(), places.end()};
  }

  RankProgram rank_;
  std::int32_t meetings_;
  FreeableParts parts_;
  std::map<std::set<std::string>, double> known_;  // steps by their free parts
};

// The part that gains most in addition to those that are free already; if none gains, because
// others take as long in parallel, the one that takes longest. Names decide between equals.
Result<std::pair<std::size_t, double>> next_part(FreedSchedules& schedules,
                                                 const std::vector<std::string>& left,
                                                 std::vector<std::string> free, double now,
                                                 double least_gain) {
  std::pair<std::size_t, double> best{0, 0};
  free.emplace_back();
  for (std::size_t i = 0; i < left.size(); ++i) {
    free.back() = left[i];
    PERFMODEL_TRY(step, schedules.step_us(free));
    if (i == 0 || *step < best.second) best = {i, *step};
  }
  if (now - best.second >= least_gain) return best;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (schedules.parts().total_us(left[i]) > schedules.parts().total_us(left[best.first])) {
      best.first = i;
    }
  }
  free.back() = left[best.first];
  PERFMODEL_TRY(step, schedules.step_us(free));
  best.second = *step;
  return best;
}

}  // namespace

Result<Ceiling> step_ceiling(const ExecutionGraph& graph, const WhatIfTarget& target) {
  constexpr double kLeastGain = 1e-3;  // share of the step that is worth a row
  PERFMODEL_TRY_TO(check_input(graph, target.options));
  if (target.overheads->method == OverheadMethod::kLin) {
    return decline(
        "expected overheads of method context to free terms of a step, found method lin");
  }
  PERFMODEL_TRY(
      paced, paced_program({.graph = &graph, .table = target.overheads, .options = target.options},
                           target.gpu));
  const auto steps = static_cast<double>(paced->rank.program.steps.size());
  FreedSchedules schedules(std::move(paced->rank), paced->meetings);

  Ceiling ceiling;
  PERFMODEL_TRY(step, schedules.step_us({}));
  ceiling.step_us = *step;
  PERFMODEL_TRY(second, schedules.without_path_us());
  ceiling.without_path_us = *second;

  schedules.parts().join_below(kLeastGain * *step * steps);
  std::vector<std::string> left = schedules.parts().names(), free;
  std::map<std::string, double> alone;
  for (const std::string& name : left) {
    PERFMODEL_TRY(freed, schedules.step_us({name}));
    alone[name] = *step - *freed;
  }
  double now = *step;
  while (!left.empty()) {
    PERFMODEL_TRY(next, next_part(schedules, left, free, now, kLeastGain * *step));
    const auto& [place, after] = *next;

    const std::string& name = left[place];
    ceiling.rows.push_back({.what = name,
                            .alone_us = alone[name],
                            .after_us = after,
                            .gain_us = now - after,
                            .gain_share = *step > 0 ? (now - after) / *step : 0});
    now = after;
    free.push_back(name);
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(place));
  }
  ceiling.rest_us = now;
  return ceiling;
}

}  // namespace perfmodel
