#pragma once

#include <string>

#include "perfmodel/detail/critical_path.hpp"
#include "perfmodel/detail/rank_report.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// Adds `critical_path`, the steps, with `critical_path_shares` and `off_path`.
void add_critical_path(Json& json, const CriticalPath& path);

/// Shares of the step, its longest steps and what the step would be without them, and what lies
/// beside the path.
std::string critical_path_text(const CriticalPath& path, const std::string& title, std::size_t top,
                               bool bold);

Json communication_json(const RankReport& rank);
Json job_json(const JobReport& job);

}  // namespace perfmodel::cli
