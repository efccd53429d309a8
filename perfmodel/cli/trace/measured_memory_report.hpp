#pragma once

#include <string>
#include <vector>

#include "perfmodel/detail/measured_memory.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// A table with one row per device; empty without devices.
std::string measured_memory_text(const std::vector<MeasuredMemory>& devices, bool bold);

/// Refused: names that end neither in .csv nor in .svg.
Result<void> check_curve_name(const std::string& file);
/// All points as CSV, or the curves as SVG, by the file's name.
Result<void> write_memory_curves(const std::vector<MeasuredMemory>& devices,
                                 const std::string& source, const std::string& file);

}  // namespace perfmodel::cli
