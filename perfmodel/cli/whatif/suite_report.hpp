#pragma once

#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/suite/run_suite.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// What `suite NAME` prints and draws.
struct SuiteOutput {
  suite::SuiteReport report;
  std::string kernel_models, host;  ///< as asked for
  double host_scale = 1;
};

std::string suite_text(const SuiteOutput& output, bool bold);
Json suite_json(const SuiteOutput& output);
std::string suite_csv(const SuiteOutput& output);
/// Two panels per model: throughput and utilisation over the batch.
Result<std::string> suite_svg(const SuiteOutput& output);

/// What `suite list` prints.
std::string suites_text(const std::vector<suite::Suite>& suites, bool bold);
Json suites_json(const std::vector<suite::Suite>& suites);

}  // namespace perfmodel::cli
