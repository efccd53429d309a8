#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "perfmodel/sync/run_sync.hpp"

namespace perfmodel::sync {
namespace {

constexpr std::array<std::int64_t, 8> kFirstTaus = {1, 5, 10, 20, 40, 60, 80, 100};
constexpr double kMostCommitsPerPeriod = 1e6, kGrowthOfRate = 1.25;
constexpr int kFailuresInARow = 8;  ///< rates that gain nothing before the search ends
constexpr double kPeriodsTried = 5;
constexpr std::int64_t kCommitsTried = 100;  ///< per worker, if periods hold more

double longest_round_us(const SyncJob& job) {
  double longest = 0;
  for (const Worker& worker : job.workers) {
    longest = std::max(longest, worker.step_us * worker.straggler.mean() + worker.commit_us);
  }
  return longest + job.servers.commit_us * static_cast<double>(job.workers.size());
}

Result<SchemeSettings> tuned_adsp(const SyncJob& job, SchemeSettings settings,
                                  const LossModel& loss) {
  const SyncTarget some_periods{
      .commits = kCommitsTried * static_cast<std::int64_t>(job.workers.size()),
      .horizon_us = kPeriodsTried * std::max(settings.period_us, longest_round_us(job))};
  SchemeSettings best = settings;
  double best_us = std::numeric_limits<double>::infinity();
  // The time falls in steps, as a worker's commits fall on ends of its steps.
  int failures = 0;
  for (double commits = 1; commits <= kMostCommitsPerPeriod && failures < kFailuresInARow;
       commits = std::max(commits + 1, std::floor(commits * kGrowthOfRate))) {
    settings.commits_per_period = {commits};
    PERFMODEL_TRY(run, run_sync(job, settings, some_periods, loss));
    PERFMODEL_TRY(reached, time_to_target(job, settings, *run, loss));
    ++failures;
    if (reached->time_us >= best_us) continue;
    failures = 0;
    best_us = reached->time_us;
    best = settings;
  }
  return best;
}

Result<SchemeSettings> tuned_adacomm(const SyncJob& job, SchemeSettings settings,
                                     const LossModel& loss) {
  double best_rate = 0;
  SchemeSettings local = settings;
  local.scheme = Scheme::kLocalSgd;
  for (const std::int64_t tau : kFirstTaus) {
    local.tau = tau;
    PERFMODEL_TRY(run, run_sync(job, local, {.rounds = 4}, loss));
    const double rate =
        static_cast<double>(run->steps()) / loss.factor(static_cast<double>(tau), 0) / run->time_us;
    if (rate <= best_rate) continue;
    best_rate = rate;
    settings.tau = tau;
  }
  return settings;
}

}  // namespace

Result<TimeToTarget> time_to_target(const SyncJob& job, const SchemeSettings& settings,
                                    const SyncRun& run, const LossModel& loss) {
  if (settings.scheme == Scheme::kAdacomm) {
    PERFMODEL_TRY(whole, run_sync(job, settings, {.progress = loss.steps_to_target}, loss));
    return TimeToTarget{.steps = static_cast<double>(whole->steps()), .time_us = whole->time_us};
  }
  const double steps = loss.steps_to_target * loss.factor(run.mean_tau(), run.mean_staleness());
  if (run.steps() == 0) {
    return TimeToTarget{.steps = steps, .time_us = std::numeric_limits<double>::infinity()};
  }
  return TimeToTarget{.steps = steps,
                      .time_us = steps * run.time_us / static_cast<double>(run.steps())};
}

Result<SchemeSettings> tuned(const SyncJob& job, SchemeSettings settings, const LossModel& loss) {
  if (settings.scheme == Scheme::kAdsp) return tuned_adsp(job, std::move(settings), loss);
  if (settings.scheme == Scheme::kAdacomm) return tuned_adacomm(job, std::move(settings), loss);
  return settings;
}

}  // namespace perfmodel::sync
