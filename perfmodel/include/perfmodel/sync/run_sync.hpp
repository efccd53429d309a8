#pragma once

#include "perfmodel/sync/detail/sync_job.hpp"

namespace perfmodel::sync {

/// Runs the job under a scheme on lanes with policies (perfmodel/detail/lane_policy.hpp): a lane
/// per worker, one per server.
///
/// BSP: a round lasts max(step + commit). Local SGD: max(tau step + commit). SSP: a step is compute
/// and commit; the next one may begin while the worker's finished steps exceed the slowest worker's
/// by less than `staleness`. ASP: SSP without a bound. ADSP: after a step the worker commits if at
/// least period / commits - commit time has passed since its last commit ended. ADACOMM: local SGD;
/// after each period tau becomes ceil(tau0 sqrt(loss / loss0)), or ceil(tau / 2) where that is not
/// smaller. With `Exchange::kAllReduce` a round lasts max(tau step) + max(commit).
///
/// Errors: no workers, a step without time, settings out of range, no target, an all-reduce of a
/// scheme whose workers do not meet.
Result<SyncRun> run_sync(const SyncJob& job, const SchemeSettings& settings,
                         const SyncTarget& target, const LossModel& loss = {});

/// How long the job takes to the target of the loss model. `run` shows tau and staleness of the
/// steady state; ADACOMM is run to the end.
struct TimeToTarget {
  double steps = 0, time_us = 0;
};
Result<TimeToTarget> time_to_target(const SyncJob& job, const SchemeSettings& settings,
                                    const SyncRun& run, const LossModel& loss);

/// ADSP's search for the commits per period of all workers: one, two, three ... and on in steps of
/// a quarter, while the time to the target falls. ADACOMM's: the tau among 1, 5, 10, 20, 40, 60, 80
/// and 100 that gains most per second at the beginning. Others: as they are.
Result<SchemeSettings> tuned(const SyncJob& job, SchemeSettings settings, const LossModel& loss);

}  // namespace perfmodel::sync
