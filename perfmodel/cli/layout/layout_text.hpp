#pragma once

#include <string>
#include <vector>

#include "jobs/read_job.hpp"
#include "layout/layout_report.hpp"

namespace perfmodel::cli {

/// Says which settings of a job were understood, left out, unknown.
std::string job_text(const JobReading& reading);

std::string layout_text(const LayoutReport& report, bool bold);
/// The parts of the first layout's memory, and whether it fits.
std::string layout_memory_text(const LayoutReport& report, bool bold);
/// Two layouts, term by term.
std::string layout_comparison_text(const LayoutReport& report, bool bold);
/// The best layout at each value of the input `axis`.
std::string layout_sweep_text(const std::string& axis, const std::vector<LayoutSweepRow>& rows,
                              bool bold);
/// By how much predictions missed measured steps, and the factors that moved most.
std::string fit_text(const MeasuredFit& fit, bool bold);

}  // namespace perfmodel::cli
