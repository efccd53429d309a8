#pragma once

#include <string>

#include "suite_results.hpp"

namespace perfmodel::suite {

/// Two panels per model: throughput and utilisation over the batch.
Result<std::string> suite_svg(const SuiteOutput& output);

}  // namespace perfmodel::suite
