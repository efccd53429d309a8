#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "perfmodel/detail/trace_ranks.hpp"
#include "terminal/output.hpp"
#include "trace/trace_results.hpp"

namespace perfmodel::cli {

/// One screen, most telling first; `full` adds the tables that it leaves out. Tables have `top`
/// rows.
std::string trace_text(const TraceFindings& found, std::size_t top, bool full, bool bold);

std::string ranks_text(std::span<const TraceFindings> found, const TraceRanks& ranks,
                       std::size_t top, bool bold);

}  // namespace perfmodel::cli
