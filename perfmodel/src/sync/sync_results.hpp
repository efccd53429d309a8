#pragma once

#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "sync/measured_sync.hpp"
#include "sync/sync_study.hpp"

/// Figures of synchronisation (docs/sync.md), as JSON and text have them.
namespace perfmodel::sync {

/// A worker of a job under one scheme.
struct WorkerRow {
  Worker worker;
  WorkerRun run;
  double time_us = 0;  ///< length of the whole run
};
std::vector<WorkerRow> worker_rows(const SyncJob& job, const SyncRun& run);

extern const ResultFields<WorkerRow> kWorkerFields;
extern const ResultFields<SchemeReport> kSchemeFields;
extern const ResultFields<AnsweredCase> kAnsweredCaseFields;
extern const ResultFields<ComparedRun> kComparedRunFields;

/// Documents without their heads.
OrderedJson sync_json(const SyncReport& report);
OrderedJson sync_cases_json(const std::vector<AnsweredCase>& cases,
                            const std::vector<std::string>& warnings);
OrderedJson measured_sync_json(const ServerConstants& constants,
                               const std::vector<ComparedRun>& runs,
                               const std::vector<std::string>& warnings);

/// "ssp, s = 3", "local_sgd, tau = 40", "adsp, 4 commits per 60 s".
std::string scheme_title(const SchemeSettings& settings);
/// "12.5 ms"; "never" if infinite.
std::string duration_text(double us);

}  // namespace perfmodel::sync
