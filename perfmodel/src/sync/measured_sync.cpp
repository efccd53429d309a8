#include "sync/measured_sync.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/impossible.hpp"
#include "perfmodel/sync/run_sync.hpp"

namespace perfmodel::sync {
namespace {

constexpr std::int64_t kRoundsOfFit = 8;
constexpr int kHalvings = 60;

Result<double> round_of(const SyncJob& job) {
  PERFMODEL_TRY(run, run_sync(job, {.scheme = Scheme::kBsp}, {.rounds = kRoundsOfFit}));
  return run->time_us / static_cast<double>(kRoundsOfFit);
}

void split_commit(SyncJob& job, double own, double servers) {
  for (Worker& worker : job.workers) worker.commit_us = own;
  job.servers.commit_us = servers;
}

}  // namespace

Result<ServerConstants> fit_servers(const std::vector<MeasuredRun>& runs) {
  const auto bsp = std::ranges::find_if(
      runs, [](const MeasuredRun& run) { return run.settings.scheme == Scheme::kBsp; });
  if (bsp == runs.end()) return impossible("a BSP run, which gives the constants", "none");
  const auto workers = static_cast<double>(bsp->compute_s.size());
  const double rounds = bsp->steps / workers;
  ServerConstants made{.round_s = bsp->wall_s / rounds};
  made.job.exchange = Exchange::kServers;
  double step_s = 0;
  for (std::size_t i = 0; i < bsp->compute_s.size(); ++i) {
    made.job.workers.push_back(
        {.name = fmt::format("worker {}", i), .step_us = bsp->compute_s[i] / rounds});
    step_s += bsp->compute_s[i] / rounds / workers;
  }
  const double commit_s = made.round_s - step_s - bsp->blocked_s / rounds;
  if (commit_s < 0) {
    return impossible(fmt::format("a blocked time of at most {:.6g} s in \"{}\"",
                                  (made.round_s - step_s) * rounds, bsp->id),
                      bsp->blocked_s);
  }
  double low = 0, high = commit_s;
  for (int i = 0; i < kHalvings; ++i) {
    const double shared = (low + high) / 2;
    split_commit(made.job, commit_s - shared, shared);
    PERFMODEL_TRY(round, round_of(made.job));
    (*round < made.round_s ? low : high) = shared;
  }
  return made;
}

Result<std::vector<ComparedRun>> compare_runs(const std::vector<MeasuredRun>& runs,
                                              const ServerConstants& constants,
                                              const LossModel& loss) {
  std::vector<ComparedRun> compared;
  for (const MeasuredRun& run : runs) {
    PERFMODEL_TRY(settings, tuned(constants.job, run.settings, loss));
    if (run.compute_s.size() != constants.job.workers.size()) {
      return impossible(fmt::format("{} workers in \"{}\"", constants.job.workers.size(), run.id),
                        run.compute_s.size());
    }
    // As many steps as were measured, in time.
    PERFMODEL_TRY(predicted, run_sync(constants.job, *settings, {.horizon_us = run.wall_s}, loss));
    if (predicted->steps() == 0) {
      return impossible(fmt::format("a run long enough for a step in \"{}\"", run.id), run.wall_s);
    }
    ComparedRun one{.measured = run,
                    .fitted = run.settings.scheme == Scheme::kBsp,
                    .settings = std::move(*settings)};
    one.measured_s_per_step = run.wall_s / run.steps;
    one.predicted_s_per_step = predicted->time_us / static_cast<double>(predicted->steps());
    one.measured_blocked_share = run.blocked_s / run.wall_s;
    one.predicted_blocked_share = predicted->waiting_share();
    one.predicted = std::move(*predicted);
    compared.push_back(std::move(one));
  }
  return compared;
}

}  // namespace perfmodel::sync
