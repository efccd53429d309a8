#pragma once

#include <string>

#include "what_if_report.hpp"

namespace perfmodel {

/// Throughput over the axis with several numbers (batch, sequence) if there is one, a line per
/// other variant and GPU; else a bar per variant and GPU.
Result<std::string> what_if_svg(const WhatIfReport& report);

}  // namespace perfmodel
