#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sync/run_sync.hpp"
#include "sync/measured_sync.hpp"
#include "sync/sync_cases.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// One scheme of `sync --workers`.
struct SyncSchemeReport {
  sync::SchemeSettings settings;
  sync::SyncRun run;
  sync::TimeToTarget reached;
};

/// The schemes with the last worker's steps `slowdown` times as long.
struct SyncSweepPoint {
  double slowdown = 1;
  std::vector<SyncSchemeReport> schemes;
};

/// What `sync --workers` prints and draws.
struct SyncReport {
  sync::SyncJob job;
  sync::LossModel loss;
  std::vector<SyncSchemeReport> schemes;
  std::vector<SyncSweepPoint> sweep;
  std::vector<std::string> notes;
};

Json sync_json(const SyncReport& report);
/// `full`: a table of workers per scheme.
std::string sync_text(const SyncReport& report, bool full, bool bold);
/// Updates and time to the target over the heterogeneity.
Result<std::string> sync_svg(const SyncReport& report);

/// An answered case of a file of exact timelines.
struct AnsweredCase {
  sync::SyncCase asked;
  sync::SyncRun run;
};

Json sync_cases_json(const std::vector<AnsweredCase>& cases,
                     const std::vector<std::string>& warnings);
std::string sync_cases_text(const std::vector<AnsweredCase>& cases, bool bold);

Json measured_sync_json(const sync::ServerConstants& constants,
                        const std::vector<sync::ComparedRun>& runs,
                        const std::vector<std::string>& warnings);
std::string measured_sync_text(const sync::ServerConstants& constants,
                               const std::vector<sync::ComparedRun>& runs, bool bold);

/// "ssp, s = 3", "local_sgd, tau = 40", "adsp, 4 commits per 60 s".
std::string scheme_title(const sync::SchemeSettings& settings);

}  // namespace perfmodel::cli
