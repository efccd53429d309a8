#pragma once

#include <string>

#include "whatif/what_if_report.hpp"

namespace perfmodel::cli {

std::string what_if_text(const WhatIfReport& report, bool bold);

}  // namespace perfmodel::cli
