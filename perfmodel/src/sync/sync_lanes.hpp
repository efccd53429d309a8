#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "perfmodel/detail/lane_policy.hpp"
#include "perfmodel/sync/detail/sync_job.hpp"

namespace perfmodel::sync {

/// State that policies of one job share: the progress and the waits of each worker.
struct SyncState {
  struct Progress {
    enum class Phase { kIdle, kComputing, kReady, kCommitting, kAtServers };
    Phase phase = Phase::kIdle;
    double free_since_us = 0;   ///< end of the last thing that the worker did
    double last_commit_us = 0;  ///< its end
    double posted_us = 0;       ///< when its commit reached the servers
    double block_start_us = 0;  ///< begin of the steps on the lane
    std::int64_t block_steps = 0;
    std::int64_t rounds_computed = 0;
    std::int64_t version = 0;  ///< commits of all when the steps of the next commit began
    std::int64_t open_shards = 0;
  };

  const SyncJob& job;
  const SchemeSettings& settings;
  const SyncTarget& target;
  const LossModel& loss;

  std::vector<Progress> progress;
  std::vector<WorkerRun> totals;
  std::vector<std::deque<std::int32_t>> queues;  ///< per server, workers in the order of arrival
  std::vector<std::int64_t> staleness;
  struct Interval {
    double us = 0;
    std::int64_t steps = 0;
  };
  std::vector<Interval> intervals;          ///< between a worker's commits, or of joint rounds
  double round_since_us = 0;                ///< begin of the present joint round
  std::vector<std::int64_t> taus;           ///< ADACOMM, per round
  double tau_since_us = 0, progressed = 0;  ///< progress in synchronous steps
  std::int64_t version = 0;
  /// The least number that any worker has of something, and how many have no more.
  struct Fewest {
    std::int64_t count = 0;
    std::size_t workers = 0;
  };
  Fewest commits, computed;
  LaneWake wake;

  bool joint() const;
  bool finished() const;
};

/// Workers: steps, then a commit, by the rules of the scheme.
class WorkerPolicy final : public LanePolicy {
 public:
  explicit WorkerPolicy(SyncState& state);
  std::optional<LaneTask> next(std::int32_t lane, double now_us) override;
  void ended(std::int32_t lane, const LaneTask& task, double now_us) override;
  bool finished() const override { return state_.finished(); }
  LaneWake wake() override { return std::exchange(state_.wake, {}); }

 private:
  bool may_begin(const WorkerRun& totals) const;
  std::int64_t block_steps(std::size_t worker, double now_us);
  std::int64_t tau_of_round(std::int64_t round, double now_us);
  std::int64_t steps_to_adsp_commit(std::size_t worker, double now_us) const;
  LaneTask begin_steps(std::size_t worker, double now_us);
  LaneTask begin_commit(std::size_t worker, double now_us);

  SyncState& state_;
  double slowest_commit_us_ = 0;
};

/// Servers: one commit at a time, first come, first served. Their lanes follow the workers' lanes.
class ServerPolicy final : public LanePolicy {
 public:
  explicit ServerPolicy(SyncState& state) : state_(state) {}
  std::optional<LaneTask> next(std::int32_t lane, double now_us) override;
  void ended(std::int32_t lane, const LaneTask& task, double now_us) override;
  bool finished() const override { return state_.finished(); }
  LaneWake wake() override { return {}; }  // the workers' policy tells for both

 private:
  double shard_us() const;
  std::deque<std::int32_t>& queue_of(std::int32_t lane);

  SyncState& state_;
};

}  // namespace perfmodel::sync
