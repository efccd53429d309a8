#include "perfmodel/sync/run_sync.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/impossible.hpp"
#include "predict/straggler_draws.hpp"
#include "sync/sync_lanes.hpp"

namespace perfmodel::sync {
namespace {

using Phase = SyncState::Progress::Phase;

constexpr double kMostUs = 1e15, kMostCount = 1e12;
constexpr std::int64_t kMostServers = 100'000;

Result<void> check_workers(const SyncJob& job) {
  if (job.workers.empty()) return impossible("at least one worker", "none");
  for (const Worker& worker : job.workers) {
    if (!(worker.step_us > 0 && worker.step_us < kMostUs)) {
      return impossible(fmt::format("a step above 0 of worker \"{}\"", worker.name),
                        worker.step_us);
    }
    if (!(worker.commit_us >= 0 && worker.commit_us < kMostUs)) {
      return impossible(fmt::format("a commit of at least 0 of worker \"{}\"", worker.name),
                        worker.commit_us);
    }
  }
  if (job.exchange != Exchange::kServers) return {};
  if (job.servers.count < 1 || job.servers.count > kMostServers) {
    return impossible(fmt::format("1 to {} servers", kMostServers), job.servers.count);
  }
  if (!(job.servers.commit_us >= 0 && job.servers.commit_us < kMostUs)) {
    return impossible("a server's commit of at least 0", job.servers.commit_us);
  }
  return {};
}

Result<void> check_settings(const SyncJob& job, const SchemeSettings& settings) {
  const Scheme scheme = settings.scheme;
  if ((scheme == Scheme::kLocalSgd || scheme == Scheme::kAdacomm) &&
      (settings.tau < 1 || static_cast<double>(settings.tau) > kMostCount)) {
    return impossible("a tau of at least 1", settings.tau);
  }
  if (scheme == Scheme::kSsp && settings.staleness && *settings.staleness < 0) {
    return impossible("a staleness of at least 0", *settings.staleness);
  }
  if ((scheme == Scheme::kAdsp || scheme == Scheme::kAdacomm) &&
      !(settings.period_us > 0 && settings.period_us < kMostUs)) {
    return impossible("a period above 0", settings.period_us);
  }
  const auto& rates = settings.commits_per_period;
  if (scheme == Scheme::kAdsp && rates.size() != 1 && rates.size() != job.workers.size()) {
    return impossible(fmt::format("commits per period of all {} workers", job.workers.size()),
                      rates.size());
  }
  for (const double rate : rates) {
    if (scheme == Scheme::kAdsp && !(rate > 0 && rate < kMostCount)) {
      return impossible("commits per period above 0", rate);
    }
  }
  const bool meets =
      scheme == Scheme::kBsp || scheme == Scheme::kLocalSgd || scheme == Scheme::kAdacomm;
  if (job.exchange == Exchange::kAllReduce && !meets) {
    return impossible("a scheme whose workers commit together, for an all-reduce",
                      scheme_name(scheme));
  }
  return {};
}

Result<void> check_target(const SchemeSettings& settings, const SyncTarget& target) {
  if (target.rounds && *target.rounds < 1) return impossible("at least one round", *target.rounds);
  if (target.commits && *target.commits < 1) {
    return impossible("at least one commit", *target.commits);
  }
  if (!(target.horizon_us > 0)) return impossible("a horizon above 0", target.horizon_us);
  if (target.progress && settings.scheme != Scheme::kAdacomm) {
    return impossible("a target of progress for adacomm alone", scheme_name(settings.scheme));
  }
  if (!target.rounds && !target.commits && !target.progress && !std::isfinite(target.horizon_us)) {
    return impossible("rounds, commits or a horizon to run to", "none");
  }
  return {};
}

// Work in flight at the end counts as work, and its finished steps count if steps count without
// their commit.
void cut_off(SyncState& state, std::size_t index, double end_us) {
  SyncState::Progress& worker = state.progress[index];
  WorkerRun& totals = state.totals[index];
  switch (worker.phase) {
    case Phase::kIdle:
    case Phase::kReady: totals.waiting_us += std::max(0.0, end_us - worker.free_since_us); break;
    case Phase::kCommitting: totals.commit_us += end_us - worker.block_start_us; break;
    case Phase::kAtServers: totals.waiting_us += end_us - worker.posted_us; break;
    case Phase::kComputing: {
      const double passed_us = end_us - worker.block_start_us;
      totals.compute_us += passed_us;
      const auto ended_by = [&](std::int64_t steps) {
        return steps_us(state.job.workers[index], index, state.job.seed, totals.steps, steps) <=
               passed_us + 1e-9 * end_us;
      };
      std::int64_t low = 0, high = worker.block_steps;  // ended, not ended
      while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (ended_by(middle) ? low : high) = middle;
      }
      totals.steps += low;
      break;
    }
  }
}

void summarise_intervals(const SyncState& state, SyncRun& run) {
  std::vector<double> per_step;
  double us = 0, steps = 0;
  for (const SyncState::Interval& interval : state.intervals) {
    us += interval.us;
    steps += static_cast<double>(interval.steps);
    per_step.push_back(interval.us / static_cast<double>(interval.steps));
  }
  if (per_step.empty()) return;
  run.step_mean_us = us / steps;
  const auto at = [&](double share) {
    const auto position =
        static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(per_step.size()))) - 1;
    const auto nth = per_step.begin() + std::max<std::ptrdiff_t>(0, position);
    std::ranges::nth_element(per_step, nth);
    return *nth;
  };
  run.step_median_us = at(0.5);
  run.step_p95_us = at(0.95);
}

}  // namespace

Result<SyncRun> run_sync(const SyncJob& job, const SchemeSettings& settings,
                         const SyncTarget& target, const LossModel& loss) {
  PERFMODEL_TRY_TO(check_workers(job));
  PERFMODEL_TRY_TO(check_settings(job, settings));
  PERFMODEL_TRY_TO(check_target(settings, target));
  const std::size_t count = job.workers.size();
  SyncState state{.job = job,
                  .settings = settings,
                  .target = target,
                  .loss = loss,
                  .progress = std::vector<SyncState::Progress>(count),
                  .totals = std::vector<WorkerRun>(count),
                  .commits = {.workers = count},
                  .computed = {.workers = count}};
  WorkerPolicy workers(state);
  ServerPolicy servers(state);
  std::vector<LanePolicy*> lanes(count, &workers);
  if (job.exchange == Exchange::kServers) {
    state.queues.resize(job.servers.count);
    lanes.resize(count + state.queues.size(), &servers);
  }
  PERFMODEL_TRY(ran, run_lanes(lanes, {.until_us = target.horizon_us}));
  SyncRun run{.time_us = ran->end_us};
  for (std::size_t i = 0; i < count; ++i) {
    cut_off(state, i, ran->end_us);
    if (settings.scheme == Scheme::kBsp || settings.scheme == Scheme::kAsp ||
        settings.scheme == Scheme::kSsp) {
      state.totals[i].steps = state.totals[i].commits;
    }
  }
  summarise_intervals(state, run);
  run.workers = std::move(state.totals);
  run.staleness = std::move(state.staleness);
  run.taus = std::move(state.taus);
  return run;
}

}  // namespace perfmodel::sync
