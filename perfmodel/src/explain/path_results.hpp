#pragma once

#include "fields/result_field.hpp"
#include "perfmodel/detail/critical_path.hpp"
#include "perfmodel/detail/rank_report.hpp"

namespace perfmodel {

/// The path with its shares, and the work off the path.
extern const ResultFields<CriticalPath> kCriticalPathFields;
extern const ResultFields<RankReport> kRankReportFields;
extern const ResultFields<JobReport> kJobReportFields;

}  // namespace perfmodel
