#pragma once

#include <vector>

#include "sync/sync_cases.hpp"

namespace perfmodel::sync {

/// A measured run and the run computed from the job's constants. Times in seconds.
struct ComparedRun {
  MeasuredRun measured;
  bool fitted = false;  ///< the run that gave the constants
  SchemeSettings settings = {};
  SyncRun predicted = {};
  double measured_s_per_step = 0, predicted_s_per_step = 0;
  double measured_blocked_share = 0, predicted_blocked_share = 0;
};

/// Constants of a job on parameter servers, from its BSP run alone:
///
///   step_i    compute seconds of worker i over its steps
///   q         mean commit of a worker: round - mean step - mean blocked time
///   q = a + b with a the worker's own part and b the server's, for which workers queue; b is found
///   such that the round of the schedule is the measured one (it grows by n - 1 per second of b).
struct ServerConstants {
  SyncJob job = {};  ///< a in `commit_us`, b in `servers.commit_us`, all in seconds
  double round_s = 0;
};
/// Errors: no BSP run; one whose blocked time is longer than its round leaves room for.
Result<ServerConstants> fit_servers(const std::vector<MeasuredRun>& runs);

/// All runs, with the constants of the BSP run.
Result<std::vector<ComparedRun>> compare_runs(const std::vector<MeasuredRun>& runs,
                                              const ServerConstants& constants,
                                              const LossModel& loss);

}  // namespace perfmodel::sync
