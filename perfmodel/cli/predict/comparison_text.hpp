#pragma once

#include <cstddef>
#include <string>

#include "perfmodel/detail/trace_comparison.hpp"

namespace perfmodel::cli {

/// `before` and `after` are names of files.
std::string comparison_text(const TraceComparison& comparison, const std::string& before,
                            const std::string& after, std::size_t top, bool bold);

/// A prediction next to the trace in the file of that name.
std::string against_text(const TraceComparison& comparison, const std::string& trace,
                         std::size_t top, bool bold);

}  // namespace perfmodel::cli
