#pragma once

#include <string>
#include <vector>

#include "suite/suite_results.hpp"

namespace perfmodel::cli {

using suite::SuiteOutput;

std::string suite_text(const SuiteOutput& output, bool bold);

/// The text of `suite list`.
std::string suites_text(const std::vector<suite::Suite>& suites, bool bold);

}  // namespace perfmodel::cli
