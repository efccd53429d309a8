#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fields/field.hpp"
#include "perfmodel/sync/run_sync.hpp"
#include "sync/sync_cases.hpp"
#include "sync/sync_workers.hpp"

namespace perfmodel::sync {

/// One job of mixed workers and the schemes to be compared for it.
struct SyncQuestion {
  std::string workers;                            ///< a file, or a list as `parse_workers` reads it
  std::string graph;                              ///< file of one worker's step
  std::vector<std::string> gpus;                  ///< instead of `workers`: the GPU of each rank
  std::vector<double> host_scale, link_gb_per_s;  ///< one value, or one per rank
  std::string straggler;
  std::uint64_t seed = 0;
  std::string exchange;
  std::optional<std::int64_t> servers;
  std::optional<double> server_gb_per_s, server_commit_us, model_bytes;
  std::vector<std::string> schemes = {"all"};
  std::optional<std::int64_t> target_updates, tau;
  std::optional<std::string> staleness;
  double period_s = 60;
  std::vector<double> commits_per_period;
  std::string loss_model;
  std::vector<double> slowdowns;
};

using SyncField = Field<SyncQuestion, std::uint64_t, std::optional<std::string>,
                        std::vector<double>, std::vector<std::string>>;
/// All fields in the order of the help.
std::span<const SyncField> sync_fields();

/// One scheme of the job.
struct SchemeReport {
  SchemeSettings settings;
  SyncRun run;
  TimeToTarget reached;
};

/// The schemes with the last worker's steps `slowdown` times as long.
struct SweepPoint {
  double slowdown = 1;
  std::vector<SchemeReport> schemes;
};

struct SyncReport {
  SyncJob job;
  LossModel loss;
  std::vector<SchemeReport> schemes = {};
  std::vector<SweepPoint> sweep = {};
  std::vector<std::string> notes;
};

/// The workers of the question, with its values for all ranks or per rank. Fails if a reader or a
/// parser fails, if the number of values is neither one nor the number of ranks, and if servers are
/// set without their exchange.
Result<SyncPlan> plan_of(const SyncQuestion& question);

/// Runs every scheme, tuned if the question sets no rate, on the job and on its slowed variants.
Result<SyncReport> compare_schemes(const SyncQuestion& question, PlannedJob planned,
                                   const LossModel& loss);

/// An answered case of a file of exact timelines.
struct AnsweredCase {
  SyncCase asked;
  SyncRun run;
};
/// Errors name the case.
Result<std::vector<AnsweredCase>> answer_cases(const std::vector<SyncCase>& cases,
                                               const LossModel& loss);

}  // namespace perfmodel::sync
