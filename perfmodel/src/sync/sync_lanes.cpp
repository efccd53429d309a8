#include "sync/sync_lanes.hpp"

#include <algorithm>
#include <cmath>

#include "base/stop_point.hpp"
#include "predict/straggler_draws.hpp"

namespace perfmodel::sync {
namespace {

using Phase = SyncState::Progress::Phase;

// Kinds of tasks on a worker's lane, as terms.
enum LaneTerm : std::int32_t { kSteps, kCommit };

// Times are sums of rounded numbers: so much of them counts as equal.
constexpr double kRounding = 1e-9;

// A worker had `before` of `count`, and has one more now. True: all have more than before.
template <class Of>
bool counted(SyncState::Fewest& fewest, std::int64_t before, const std::vector<Of>& workers,
             std::int64_t Of::*count) {
  if (before != fewest.count || --fewest.workers > 0) return false;
  fewest.count = (*std::ranges::min_element(workers, {}, count)).*count;
  fewest.workers = static_cast<std::size_t>(std::ranges::count(workers, fewest.count, count));
  return true;
}

void commit_ended(SyncState& state, std::size_t index, double now_us) {
  stop_point();
  SyncState::Progress& worker = state.progress[index];
  WorkerRun& totals = state.totals[index];
  const auto stale = state.joint() ? 0 : static_cast<std::size_t>(state.version - worker.version);
  if (state.staleness.size() <= stale) state.staleness.resize(stale + 1, 0);
  ++state.staleness[stale];
  if (!state.joint()) {
    state.intervals.push_back({now_us - worker.last_commit_us, worker.block_steps});
  }
  ++state.version;
  const std::int64_t before = totals.commits++;
  if (counted(state.commits, before, state.totals, &WorkerRun::commits)) {
    state.wake.all = true;
    if (state.joint()) {
      state.intervals.push_back({now_us - state.round_since_us, worker.block_steps});
      state.round_since_us = now_us;
    }
  }
  worker.last_commit_us = worker.free_since_us = now_us;
  worker.phase = Phase::kIdle;
  if (state.settings.scheme == Scheme::kAdacomm) {
    const auto tau = static_cast<double>(worker.block_steps);
    state.progressed += tau / state.loss.factor(tau, 0);
  }
}

}  // namespace

bool SyncState::joint() const {
  return settings.scheme == Scheme::kBsp || settings.scheme == Scheme::kLocalSgd ||
         settings.scheme == Scheme::kAdacomm;
}

bool SyncState::finished() const {
  // A round of joint commits counts when it is over.
  if (target.rounds && commits.count >= *target.rounds) return true;
  if (target.commits && version >= *target.commits) return true;
  return target.progress && progressed >= *target.progress;
}

// --- workers -----------------------------------------------------------------------------------

WorkerPolicy::WorkerPolicy(SyncState& state)
    : state_(state),
      slowest_commit_us_(
          std::ranges::max_element(state.job.workers, {}, &Worker::commit_us)->commit_us) {}

std::optional<LaneTask> WorkerPolicy::next(std::int32_t lane, double now_us) {
  const auto index = static_cast<std::size_t>(lane);
  const SyncState::Progress& worker = state_.progress[index];
  const WorkerRun& totals = state_.totals[index];
  if (worker.phase == Phase::kIdle) {
    if (state_.target.rounds && totals.commits >= *state_.target.rounds) return std::nullopt;
    if (!may_begin(totals)) return std::nullopt;
    return begin_steps(index, now_us);
  }
  if (worker.phase != Phase::kReady) return std::nullopt;
  const bool all_ready = state_.computed.count > totals.commits;
  if (state_.job.exchange == Exchange::kAllReduce && !all_ready) return std::nullopt;
  return begin_commit(index, now_us);
}

bool WorkerPolicy::may_begin(const WorkerRun& totals) const {
  const std::int64_t ahead = totals.commits - state_.commits.count;
  if (state_.joint()) return ahead < 1;
  if (state_.settings.scheme != Scheme::kSsp || !state_.settings.staleness) return true;
  return ahead < std::max<std::int64_t>(1, *state_.settings.staleness);
}

// Rounds of ADACOMM begin for all at once.
std::int64_t WorkerPolicy::tau_of_round(std::int64_t round, double now_us) {
  if (static_cast<std::size_t>(round) < state_.taus.size()) {
    return state_.taus[round];
  }
  std::int64_t tau = state_.taus.empty() ? state_.settings.tau : state_.taus.back();
  if (now_us - state_.tau_since_us >= state_.settings.period_us * (1 - kRounding)) {
    const double share = state_.loss.loss(state_.progressed) / state_.loss.loss(0);
    const auto by_loss = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(state_.settings.tau) * std::sqrt(share) - kRounding));
    tau = std::max<std::int64_t>(1, by_loss < tau ? by_loss : (tau + 1) / 2);
    state_.tau_since_us = now_us;
  }
  state_.taus.push_back(tau);
  return tau;
}

// The commit is due at the first end of a step at which enough time has passed since the last one.
std::int64_t WorkerPolicy::steps_to_adsp_commit(std::size_t index, double now_us) const {
  const Worker& worker = state_.job.workers[index];
  const auto& rates = state_.settings.commits_per_period;
  const double rate = rates[rates.size() == 1 ? 0 : index];
  const double commit_us =
      worker.commit_us +
      (state_.job.exchange == Exchange::kServers
           ? state_.job.servers.commit_us / static_cast<double>(state_.job.servers.count)
           : 0);
  const double wanted_us = state_.settings.period_us / rate - commit_us -
                           (now_us - state_.progress[index].last_commit_us);
  const double mean_us = worker.step_us * worker.straggler.mean();
  const double steps = std::ceil(wanted_us / mean_us -
                                 kRounding * state_.settings.period_us / std::max(mean_us, 1e-300));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(steps, 1e15)));
}

std::int64_t WorkerPolicy::block_steps(std::size_t index, double now_us) {
  switch (state_.settings.scheme) {
    case Scheme::kLocalSgd: return state_.settings.tau;
    case Scheme::kAdacomm: return tau_of_round(state_.totals[index].commits, now_us);
    case Scheme::kAdsp: return steps_to_adsp_commit(index, now_us);
    default: return 1;
  }
}

LaneTask WorkerPolicy::begin_steps(std::size_t index, double now_us) {
  SyncState::Progress& worker = state_.progress[index];
  WorkerRun& totals = state_.totals[index];
  totals.waiting_us += now_us - worker.free_since_us;
  worker.block_steps = block_steps(index, now_us);
  worker.block_start_us = now_us;
  worker.version = state_.version;
  worker.phase = Phase::kComputing;
  return {.duration_us = steps_us(state_.job.workers[index], index, state_.job.seed, totals.steps,
                                  worker.block_steps),
          .term = kSteps};
}

LaneTask WorkerPolicy::begin_commit(std::size_t index, double now_us) {
  SyncState::Progress& worker = state_.progress[index];
  state_.totals[index].waiting_us += now_us - worker.free_since_us;
  worker.phase = Phase::kCommitting;
  worker.block_start_us = now_us;
  const bool together = state_.job.exchange == Exchange::kAllReduce;
  return {.duration_us = together ? slowest_commit_us_ : state_.job.workers[index].commit_us,
          .term = kCommit};
}

void WorkerPolicy::ended(std::int32_t lane, const LaneTask& task, double now_us) {
  const auto index = static_cast<std::size_t>(lane);
  SyncState::Progress& worker = state_.progress[index];
  WorkerRun& totals = state_.totals[index];
  if (task.term == kSteps) {
    totals.compute_us += task.duration_us;
    totals.steps += worker.block_steps;
    worker.free_since_us = now_us;
    worker.phase = Phase::kReady;
    const std::int64_t before = worker.rounds_computed++;
    if (counted(state_.computed, before, state_.progress, &SyncState::Progress::rounds_computed)) {
      state_.wake.all = true;
    }
    return;
  }
  totals.commit_us += task.duration_us;
  if (state_.job.exchange != Exchange::kServers) return commit_ended(state_, index, now_us);
  worker.phase = Phase::kAtServers;
  worker.posted_us = worker.free_since_us = now_us;
  worker.open_shards = state_.job.servers.count;
  for (std::size_t server = 0; server < state_.queues.size(); ++server) {
    state_.queues[server].push_back(lane);
    state_.wake.lanes.push_back(static_cast<std::int32_t>(state_.job.workers.size() + server));
  }
}

// --- servers -----------------------------------------------------------------------------------

double ServerPolicy::shard_us() const {
  return state_.job.servers.commit_us / static_cast<double>(state_.job.servers.count);
}

std::deque<std::int32_t>& ServerPolicy::queue_of(std::int32_t lane) {
  return state_.queues[static_cast<std::size_t>(lane) - state_.job.workers.size()];
}

std::optional<LaneTask> ServerPolicy::next(std::int32_t lane, double) {
  auto& queue = queue_of(lane);
  if (queue.empty()) return std::nullopt;
  const std::int32_t worker = queue.front();
  queue.pop_front();
  return LaneTask{.duration_us = shard_us(), .term = worker};
}

void ServerPolicy::ended(std::int32_t, const LaneTask& task, double now_us) {
  const auto index = static_cast<std::size_t>(task.term);
  SyncState::Progress& worker = state_.progress[index];
  if (--worker.open_shards > 0) return;
  WorkerRun& totals = state_.totals[index];
  totals.commit_us += task.duration_us;
  totals.waiting_us += std::max(0.0, now_us - worker.posted_us - task.duration_us);
  state_.wake.lanes.push_back(task.term);
  commit_ended(state_, index, now_us);
}

}  // namespace perfmodel::sync
