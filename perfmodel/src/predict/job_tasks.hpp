#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/detail/schedule.hpp"
#include "program/program_tasks.hpp"
#include "rank_program.hpp"

namespace perfmodel {

/// The tasks of all ranks, pass by pass, and when they run.
struct JobTasks {
  using TaskId = TaskGraph::TaskId;

  /// A collective of several ranks in the last pass: it moves data once all have arrived.
  struct Hub {
    TaskId task = -1;
    std::vector<TaskId> arrivals, transfers;  ///< per rank, -1: not in it
  };

  /// No pass yet. `meetings`: see meet_collectives. The programs must outlive the tasks.
  JobTasks(std::span<const RankProgram> programs, std::int32_t meetings);
  JobTasks(const JobTasks&) = delete;
  JobTasks& operator=(const JobTasks&) = delete;

  TaskGraph graph;
  Schedule schedule;
  std::vector<std::unique_ptr<ProgramTasks>> ranks;
  std::vector<Hub> hubs;
  std::vector<std::vector<std::int32_t>> arrival_edges;  ///< per rank, of all passes
  TaskId pass_begin = 0;                                 ///< first task of the last pass
  std::size_t pass_first_edge = 0;
  bool steady = false;   ///< the last two passes take the same time
  bool started = false;  ///< the last pass began at given times of the ranks

  double start(TaskId task) const { return schedule.start_us[task]; }
  double end(TaskId task) const { return schedule.end_us[task]; }
  /// The rank whose lane a task is on; their number for tasks of no rank.
  std::size_t rank_of(TaskId task) const;
  /// Time from the end of the previous pass to the end of the last one, or so many passes earlier.
  double period(std::size_t rank, std::size_t passes_back = 0) const;

  /// One more pass of all ranks. After `starter`, each rank `lags_us` later; -1: after nothing.
  void add_pass(TaskId starter = -1, std::span<const double> lags_us = {});

  std::size_t passes() const { return ranks.front()->pass_ends().size(); }
  /// See ProgramTasks; the durations of all ranks.
  bool retime();

 private:
  void repeat_pass();
};

/// Adds passes, at least three in all, until the last two take the same time, to 0.1 %, on every
/// rank; warns if they never do. Errors: cancelled; errors of run_schedule.
Result<void> find_steady_state(std::span<const RankProgram> programs, JobTasks& tasks,
                               std::vector<std::string>& warnings);

/// One more pass that each rank begins at its given time, as early as the pass before allows.
Result<void> start_together(std::vector<double> rank_start_us, JobTasks& tasks);

/// Whether the tasks of two ranks only differ in the times of kernels.
bool has_same_tasks(const RankProgram& a, const RankProgram& b);

/// Length of a rank's last pass on the host, or on the device if the host runs ahead.
double pass_us(const JobTasks& tasks, std::size_t rank);
double pass_us(const JobTasks& tasks, std::size_t rank, const ScheduleVariants& variants,
               std::size_t variant);
/// The same of all ranks, per step.
std::vector<double> pass_us_per_step(std::span<const RankProgram> programs, const JobTasks& tasks);

/// Steps of all ranks in the same passes, if no rank waited for the ignored ones. Changes the
/// schedule.
Result<std::vector<double>> steps_without(const std::vector<bool>& ignored,
                                          std::span<const RankProgram> programs, JobTasks& tasks);

}  // namespace perfmodel
