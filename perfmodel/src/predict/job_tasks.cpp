#include "job_tasks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/stop_point.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

constexpr std::size_t kMaxPasses = 32;

// Approximate number of tasks in one pass.
std::size_t tasks_per_pass(std::span<const RankProgram> programs) {
  std::size_t size = 0;
  for (const RankProgram& rank : programs) size += rank.program.instructions.size();
  return 2 * size;
}

bool cancelled(std::span<const RankProgram> programs) {
  return std::ranges::any_of(
      programs, [](const RankProgram& rank) { return rank.rank.options.cancel.stop_requested(); });
}

bool is_steady(const JobTasks& tasks, std::size_t rank) {
  const double last = tasks.period(rank);
  return std::abs(last - tasks.period(rank, 1)) <= kSteadyTolerance * last;
}

// Time between the last two of these tasks; 0 if a pass has none.
double last_period(const std::vector<TaskId>& ends, auto end) {
  const TaskId last = ends.back(), before = ends[ends.size() - 2];
  return last < 0 || before < 0 ? 0 : end(last) - end(before);
}

double pass_us(const JobTasks& tasks, const ProgramTasks& rank, auto start, auto end) {
  if (tasks.started) return end(rank.pass_ends().back()) - start(rank.pass_begins().back());
  return std::max(last_period(rank.pass_ends(), end), last_period(rank.pass_device_ends(), end));
}

}  // namespace

JobTasks::JobTasks(std::span<const RankProgram> programs, std::int32_t meetings)
    : hubs(static_cast<std::size_t>(meetings)), arrival_edges(programs.size()) {
  std::int32_t lane = 0;
  for (const RankProgram& rank : programs) {
    ranks.push_back(std::make_unique<ProgramTasks>(rank.program, *rank.rank.table, lane, graph));
    lane = ranks.back()->end_lane();
  }
}

std::size_t JobTasks::rank_of(TaskId task) const {
  const std::int32_t lane = graph.lane(task);
  if (lane < 0) return ranks.size();
  const auto after = std::partition_point(
      ranks.begin(), ranks.end(), [&](const auto& rank) { return rank->end_lane() <= lane; });
  return static_cast<std::size_t>(after - ranks.begin());
}

double JobTasks::period(std::size_t rank, std::size_t passes_back) const {
  const auto& ends = ranks[rank]->pass_ends();
  const std::size_t last = ends.size() - 1 - passes_back;
  return end(ends[last]) - end(ends[last - 1]);
}

void JobTasks::repeat_pass() {
  const auto later = static_cast<TaskId>(graph.size()) - pass_begin;
  const std::size_t edges = graph.edges() - pass_first_edge;
  graph.repeat(pass_begin, pass_first_edge);
  for (auto& rank : ranks) rank->repeat(later);
  for (Hub& hub : hubs) {
    hub.task += later;
    for (auto* of_ranks : {&hub.arrivals, &hub.transfers}) {
      for (TaskId& task : *of_ranks) {
        if (task >= 0) task += later;
      }
    }
  }
  for (auto& of_rank : arrival_edges) {
    const auto first =
        std::ranges::lower_bound(of_rank, static_cast<std::int32_t>(pass_first_edge));
    for (const std::int32_t edge : std::vector(first, of_rank.end())) {
      of_rank.push_back(edge + static_cast<std::int32_t>(edges));
    }
  }
  pass_begin += later;
  pass_first_edge += edges;
}

bool JobTasks::retime() {
  const auto apart = static_cast<TaskId>(graph.size()) - pass_begin;
  return std::ranges::all_of(ranks, [&](auto& rank) { return rank->retime(apart); });
}

void JobTasks::add_pass(TaskId starter, std::span<const double> lags_us) {
  const bool repeats = std::ranges::all_of(ranks, [](auto& rank) { return rank->repeats(); });
  if (starter < 0 && repeats) return repeat_pass();
  pass_begin = static_cast<TaskId>(graph.size());
  pass_first_edge = graph.edges();
  hubs.assign(hubs.size(), {});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r]->add_pass(starter, lags_us.empty() ? 0 : lags_us[r]);
    for (const auto& arrival : ranks[r]->arrivals()) {
      Hub& hub = hubs[arrival.meeting];
      hub.arrivals.resize(ranks.size(), -1);
      hub.transfers.resize(ranks.size(), -1);
      hub.arrivals[r] = arrival.arrival;
      hub.transfers[r] = arrival.transfer;
    }
  }
  for (Hub& hub : hubs) {
    hub.task = graph.add_task(TaskGraph::kNoLane, 0);
    for (std::size_t r = 0; r < hub.arrivals.size(); ++r) {
      if (hub.arrivals[r] < 0) continue;
      arrival_edges[r].push_back(graph.add_edge(hub.arrivals[r], hub.task));
      graph.add_edge(hub.task, hub.transfers[r]);
    }
  }
}

Result<void> find_steady_state(std::span<const RankProgram> programs, JobTasks& tasks,
                               std::vector<std::string>& warnings) {
  std::size_t passes = tasks.passes();
  for (std::size_t wanted = 3;; wanted = wanted == 3 ? 8 : 2 * wanted) {
    tasks.graph.reserve(wanted * tasks_per_pass(programs));
    for (; passes < wanted; ++passes) {
      if (cancelled(programs)) return fail(ErrorCode::kCancelled, "cancelled");
      stop_point();
      tasks.add_pass();
    }
    PERFMODEL_TRY_TO(run_schedule(tasks.graph, tasks.schedule));
    std::size_t unsteady = 0;
    while (unsteady < programs.size() && is_steady(tasks, unsteady)) ++unsteady;
    tasks.steady = unsteady == programs.size();
    if (tasks.steady) return {};
    if (passes < kMaxPasses) continue;
    warnings.push_back(
        fmt::format("no steady state after {} passes: the last two took {:.1f} and {:.1f} us",
                    passes, tasks.period(unsteady, 1), tasks.period(unsteady)));
    return {};
  }
}

Result<void> start_together(std::vector<double> starts, JobTasks& tasks) {
  const double first = *std::ranges::min_element(starts);
  for (double& start : starts) start -= first;
  const TaskId line = tasks.graph.add_task(TaskGraph::kNoLane, 0);
  for (std::size_t r = 0; r < starts.size(); ++r) {
    tasks.graph.add_edge(tasks.ranks[r]->pass_ends().back(), line, -starts[r]);
  }
  tasks.add_pass(line, starts);
  tasks.steady = false;
  tasks.started = true;
  return run_schedule(tasks.graph, tasks.schedule);
}

Result<std::vector<double>> steps_without(const std::vector<bool>& ignored,
                                          std::span<const RankProgram> programs, JobTasks& tasks) {
  for (std::size_t r = 0; r < programs.size(); ++r) {
    const double lag = ignored[r] ? -std::numeric_limits<double>::infinity() : 0;
    for (std::int32_t edge : tasks.arrival_edges[r]) tasks.graph.set_lag_us(edge, lag);
  }
  PERFMODEL_TRY_TO(run_schedule(tasks.graph, tasks.schedule));
  return pass_us_per_step(programs, tasks);
}

bool has_same_tasks(const RankProgram& a, const RankProgram& b) {
  return a.rank.table == b.rank.table && a.program.instructions == b.program.instructions &&
         a.program.collectives == b.program.collectives &&
         std::ranges::equal(a.program.items, b.program.items, {}, &ProgramItem::iteration,
                            &ProgramItem::iteration) &&
         std::ranges::equal(a.program.kernels, b.program.kernels, {}, &PredictedKernel::family,
                            &PredictedKernel::family);
}

double pass_us(const JobTasks& tasks, std::size_t r) {
  return pass_us(
      tasks, *tasks.ranks[r], [&](TaskId task) { return tasks.start(task); },
      [&](TaskId task) { return tasks.end(task); });
}

double pass_us(const JobTasks& tasks, std::size_t r, const ScheduleVariants& variants,
               std::size_t variant) {
  return pass_us(
      tasks, *tasks.ranks[r], [&](TaskId task) { return variants.start_us.at(task)[variant]; },
      [&](TaskId task) { return variants.end_us[task][variant]; });
}

std::vector<double> pass_us_per_step(std::span<const RankProgram> programs, const JobTasks& tasks) {
  std::vector<double> steps;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    steps.push_back(pass_us(tasks, r) / static_cast<double>(programs[r].program.steps.size()));
  }
  return steps;
}

}  // namespace perfmodel
