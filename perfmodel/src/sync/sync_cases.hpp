#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perfmodel/sync/detail/sync_job.hpp"

namespace perfmodel::sync {

/// A case of a file of exact timelines. Times have any unit, the same for all of a case.
struct SyncCase {
  std::string id;
  SyncJob job = {};
  SchemeSettings settings = {};
  SyncTarget target = {};
};

/// A measured run of a job under one scheme.
struct MeasuredRun {
  std::string id, scheme_text;
  SchemeSettings settings = {};
  double wall_s = 0;
  double steps = 0;  ///< sum over all workers
  std::vector<double> compute_s = {};
  double blocked_s = 0;                   ///< mean over workers
  std::vector<std::string> assumed = {};  ///< settings that the file does not tell
};

/// Content of `cases` in a file: timelines to be computed, or measured runs.
struct SyncCases {
  std::vector<SyncCase> cases;
  std::vector<MeasuredRun> measured;
  std::vector<std::string> warnings;  ///< unused keys
};

/// Reads `{"cases": [...]}`. A case has `id`, `scheme`, `step_time[]`, `commit_time[]`; `rounds` or
/// `horizon`; `tau` (local_sgd, adacomm), `s` (ssp; null or "inf": no bound), `check_period` and
/// `commits_per_period[]` (adsp). A measured run has `id`, `scheme` in words, `wall_s`,
/// `total_steps`, `compute_s_per_worker_group[]`, `avg_blocked_s`. Errors: missing or wrong values,
/// by their place in the file.
Result<SyncCases> read_sync_cases(const std::filesystem::path& file);

}  // namespace perfmodel::sync
