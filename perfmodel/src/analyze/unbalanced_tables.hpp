#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "analyze/trace_step.hpp"
#include "perfmodel/detail/findings.hpp"

namespace perfmodel::findings {

inline constexpr AnalyzeRule kUnbalancedTables = {
    "unbalanced-tables",
    "several ranks: lookups and updates of tables take 20 % longer on one than on average, and 2 % "
    "of its step"};

/// The rank whose embedding tables take longest, with its step scheduled again with the mean of all
/// ranks: the gain of the job if that rank limits it. Errors as in scheduling.
Result<std::optional<Finding>> find_unbalanced_tables(
    std::span<const std::unique_ptr<TraceStep>> ranks, std::span<const std::string> names);

}  // namespace perfmodel::findings
