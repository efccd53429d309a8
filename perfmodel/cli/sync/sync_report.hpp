#pragma once

#include <string>
#include <vector>

#include "sync/measured_sync.hpp"
#include "sync/sync_study.hpp"

namespace perfmodel::cli {

/// `full`: a table of workers per scheme.
std::string sync_text(const sync::SyncReport& report, bool full, bool bold);
/// Updates and time to the target over the heterogeneity.
Result<std::string> sync_svg(const sync::SyncReport& report);

std::string sync_cases_text(const std::vector<sync::AnsweredCase>& cases, bool bold);
std::string measured_sync_text(const sync::ServerConstants& constants,
                               const std::vector<sync::ComparedRun>& runs, bool bold);

}  // namespace perfmodel::cli
