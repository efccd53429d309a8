#include "explain_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "explain/explain_rank.hpp"
#include "job_chakra.hpp"
#include "job_names.hpp"
#include "job_path.hpp"
#include "memory/step_memory.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/predictors/detail/summed_range.hpp"
#include "power_limit.hpp"
#include "program/invariants.hpp"
#include "step_range.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

CheckedRank checked(const RankProgram& rank, std::size_t r, const JobNames& names) {
  return {.graph = rank.rank.graph,
          .program = &rank.program,
          .tasks = names.tasks.ranks[r].get(),
          .task_graph = &names.tasks.graph,
          .schedule = &names.tasks.schedule,
          .name = [&names](TaskId task) { return names.with_place(task); }};
}

Result<void> check_tasks(const JobNames& names) {
  const JobTasks& tasks = names.tasks;
  auto good = check_schedule(tasks.graph, tasks.schedule,
                             [&](TaskId task) { return names.with_place(task); },
                             {.first = tasks.pass_begin, .first_edge = tasks.pass_first_edge});
  for (std::size_t r = 0; good && r < names.programs.size(); ++r) {
    good = check_readers(checked(names.programs[r], r, names));
  }
  return good;
}

Result<void> check_figures(std::size_t r, const JobNames& names, const Prediction& prediction) {
  const std::string who = names.programs.size() == 1 ? "" : fmt::format("rank {}: ", r);
  auto good = check_times(prediction, who);
  if (good) good = check_sums(prediction, names.tasks.schedule.end_us.back(), who);
  if (good && names.tasks.steady) {
    good = check_pace(checked(names.programs[r], r, names), prediction);
  }
  return good;
}

std::int64_t job_size(const RankProgram& rank, std::size_t given) {
  if (rank.program.scaled_out) return rank.program.scaled_out->world;
  auto size = static_cast<std::int64_t>(given);
  for (const KernelWork& work : rank.program.comm_works) {
    if (const auto* shape = std::get_if<CollectiveShape>(&work.shape)) {
      size = std::max(size, shape->world_size);
    }
  }
  return size;
}

std::size_t ranks_of(std::span<const RankProgram> programs) {
  std::int64_t count = 0;
  for (const RankProgram& rank : programs) count += rank.count;
  return static_cast<std::size_t>(count);
}

// If this rank came last, the others waited for it.
void report_arrivals(std::size_t r, double steps, const JobTasks& tasks, RankReport& made) {
  for (const JobTasks::Hub& hub : tasks.hubs) {
    if (hub.arrivals.empty() || hub.arrivals[r] < 0) continue;
    const double own = tasks.end(hub.arrivals[r]);
    if (own < tasks.end(hub.task)) continue;
    ++made.last_arrivals;
    for (TaskId other : hub.arrivals) {
      if (other >= 0) made.caused_us += (own - tasks.end(other)) / steps;
    }
  }
}

RankReport report_communication(const RankProgram& rank, std::size_t r, const JobTasks& tasks) {
  RankReport made;
  if (std::ranges::none_of(rank.program.instructions, collective_of)) return made;
  const auto steps = static_cast<double>(rank.program.steps.size());
  std::vector<std::pair<double, double>> other, all;
  for (const auto& placed : tasks.ranks[r]->last_pass()) {
    if (!tasks.ranks[r]->on_device(placed.task)) continue;
    all.emplace_back(tasks.start(placed.arrival), tasks.end(placed.task));
    const Launch* collective = collective_of(rank.program.instructions[placed.instruction]);
    if (!collective) {
      other.push_back(all.back());
      continue;
    }
    ++made.collectives;
    const double recorded_wait_us = rank.program.kernel(*collective).recorded_wait_us;
    made.transfer_us += (tasks.graph.duration_us(placed.task) - recorded_wait_us) / steps;
    made.waiting_us += recorded_wait_us / steps;
    if (placed.arrival != placed.task) {
      made.waiting_us += (tasks.start(placed.task) - tasks.end(placed.arrival)) / steps;
    }
  }
  if (made.collectives > 0) made.exposed_us = (union_us(all) - union_us(other)) / steps;
  report_arrivals(r, steps, tasks, made);
  return made;
}

bool copies_for_collectives(const ExecutionGraph& graph, std::int32_t node) {
  return graph.find_around(node, [&](std::int32_t i) {
    const std::string_view name = graph.name(i);
    return name.find("reducer::") != name.npos || name == "aten::flatten_dense_tensors" ||
           name == "apex.parallel.DistributedDataParallel.allreduce_fallback";
  }) >= 0;
}

Prediction::ParallelCosts report_parallel(const RankProgram& rank) {
  Prediction::ParallelCosts made{.slowest_us = rank.program.slowest_board_us};
  for (const Instruction& at : rank.program.instructions) {
    const Launch* launch = launch_of(at);
    if (!launch || launch->is_collective()) continue;
    made.beside_us += rank.program.kernel(*launch).beside_us;
    if (launch->node >= 0 && copies_for_collectives(rank.graph(), launch->node)) {
      made.copies_us += rank.program.device_us(*launch);
    }
  }
  const auto steps = static_cast<double>(rank.program.steps.size());
  for (double* us : {&made.copies_us, &made.beside_us, &made.slowest_us}) *us /= steps;
  return made;
}

void report_power(const HostProgram& program, const Gpu& gpu, Prediction& made) {
  made.energy_j = step_energy_j(gpu, program, made.e2e_us);
  for (const PredictedKernel& kernel : program.kernels) {
    made.limited_us += kernel.limited_us / static_cast<double>(program.steps.size());
  }
}

// Only kernels whose energy was measured are slowed by the board's limit.
void warn_of_power(const Gpu& gpu, Prediction& made) {
  constexpr double kTolerance = 1.002;
  const double watt = made.power_w().value_or(0);
  if (watt <= kTolerance * gpu.tdp_w) return;
  made.warnings.push_back(fmt::format(
      "the step would take {:.0f} W, more than the {:.0f} W of {}: it is slower by what "
      "the limit takes, which is not known for its kernels",
      watt, gpu.tdp_w, gpu.name));
}

// A range of a factor of three wants its reason: the family whose times are least known.
void warn_of_wide_range(const HostProgram& program, Prediction& made) {
  constexpr double kWide = 3;
  if (!(made.e2e_high_us > kWide * made.e2e_low_us)) return;
  std::map<KernelFamily, SummedRange> families;
  for (const PredictedKernel& kernel : program.kernels) {
    families[kernel.family].add(kernel.family, kernel.price, Microseconds{kernel.limited_us});
  }
  if (families.empty()) return;
  const auto width = [](const auto& entry) {
    const auto [time, low, high] = entry.second.range();
    return high - low;
  };
  const auto& [family, sum] = *std::ranges::max_element(families, {}, width);
  const auto [time, low, high] = sum.range();
  const double steps_ms = 1e3 * static_cast<double>(program.steps.size());
  made.warnings.push_back(fmt::format(
      "the range is wide mostly because {} kernels may take {:.3g} to {:.3g} ms of the step",
      to_string(family), low.count() / steps_ms, high.count() / steps_ms));
}

Result<void> report_ranges(std::span<const RankProgram> programs, JobTasks& tasks,
                           std::vector<Prediction>& ranks) {
  std::vector<double> steps_us;
  for (Prediction& rank : ranks) {
    steps_us.push_back(rank.e2e_us);
    rank.e2e_low_us = rank.e2e_high_us = rank.e2e_us;
  }
  const bool asked = std::ranges::any_of(
      programs, [](const RankProgram& rank) { return rank.rank.options.step_range; });
  if (!asked) return {};
  PERFMODEL_TRY(ranges, step_ranges(steps_us, programs, tasks));
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].e2e_low_us = (*ranges)[r].low_us;
    ranks[r].e2e_high_us = (*ranges)[r].high_us;
    warn_of_wide_range(programs[r].program, ranks[r]);
  }
  return {};
}

Result<Prediction> explain_one(std::span<RankProgram> programs, std::size_t r,
                               const JobNames& names, const PathPoints& points) {
  RankProgram& rank = programs[r];
  const Gpu& gpu = *rank.gpu;
  const JobTasks& tasks = names.tasks;
  auto made = explain_rank({.graph = rank.rank.graph,
                            .table = rank.rank.table,
                            .options = &rank.rank.options,
                            .program = &rank.program,
                            .tasks = tasks.ranks[r].get(),
                            .other_name = [&](TaskId task) { return names.with_rank(task); },
                            .other_key = [&](TaskId task) { return names.key(task); },
                            .op_key = names.op_key(),
                            .started = tasks.started},
                           tasks.graph, tasks.schedule);
  if (!made) return made;
  PERFMODEL_TRY_TO(check_figures(r, names, *made));
  made->communication = report_communication(rank, r, tasks);
  if (made->communication.collectives > 0) made->parallel = report_parallel(rank);
  if (rank.made) made->graph = {rank.made, &rank.made->graph};
  if (rank.recorded) made->graph = rank.recorded;
  made->ranks = job_size(rank, ranks_of(programs));
  if (rank.memory) report_memory(*rank.memory, rank.graph(), gpu, *made);
  report_power(rank.program, gpu, *made);
  if (rank.rank.options.sustained) warn_of_power(gpu, *made);
  if (rank.rank.options.keep_ops) made->path_points = path_points(rank, r, *made, tasks, points);
  return made;
}

Result<JobReport> report_job(std::span<const RankProgram> programs,
                             const std::vector<Prediction>& ranks, JobTasks& tasks) {
  std::vector<double> steps_us;
  std::vector<RankReport> communication;
  for (const Prediction& rank : ranks) {
    steps_us.push_back(rank.e2e_us);
    communication.push_back(rank.communication);
  }
  return job_report(steps_us, communication,
                    [&](const auto& ignored) { return steps_without(ignored, programs, tasks); });
}

}  // namespace

void report_memory(const MemoryPlan& plan, const ExecutionGraph& graph, const Gpu& gpu,
                   Prediction& prediction) {
  if (is_from_trace(graph)) {
    prediction.warnings.emplace_back(kMemoryOfTraceUnknown);
    return;
  }
  prediction.memory = step_memory(plan, graph, rank_share(prediction.scaled_out), &gpu);
  std::string warning = memory_warning(prediction.memory, gpu);
  if (!warning.empty()) prediction.warnings.push_back(std::move(warning));
}

Result<JobPrediction> explain_job(std::span<RankProgram> programs, bool chakra, JobTasks& tasks,
                                  std::vector<std::string> warnings) {
  const JobNames names{programs, tasks};
  PERFMODEL_TRY_TO(check_tasks(names));
  JobPrediction made;
  if (chakra) made.chakra = job_chakra(programs, tasks, warnings);
  const PathPoints points = note_path_points(programs, tasks);
  for (std::size_t r = 0; r < programs.size(); ++r) {
    PERFMODEL_TRY(rank, explain_one(programs, r, names, points));
    made.ranks.push_back(std::move(*rank));
  }
  const double first = std::ranges::min_element(made.ranks, {}, &Prediction::begin_us)->begin_us;
  for (Prediction& rank : made.ranks) rank.begin_us -= first;
  PERFMODEL_TRY_TO(report_ranges(programs, tasks, made.ranks));
  if (programs.size() == 1) {
    auto& own = made.ranks[0].warnings;
    own.insert(own.begin(), warnings.begin(), warnings.end());
    return made;
  }
  made.warnings = std::move(warnings);
  PERFMODEL_TRY(job, report_job(programs, made.ranks, tasks));
  made.job = *job;
  return made;
}

}  // namespace perfmodel
