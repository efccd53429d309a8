#pragma once

#include <string>
#include <vector>

#include "perfmodel/detail/findings.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// What `analyze` prints.
struct FindingsReport {
  std::vector<std::string> files;
  std::string gpu;
  Findings found;
};

/// `full`: those below 2 % too.
std::string findings_text(const FindingsReport& report, bool full);
/// findings[], step_us, measured_us, warnings[]: the document without its head.
Json findings_keys(const FindingsReport& report);

}  // namespace perfmodel::cli
