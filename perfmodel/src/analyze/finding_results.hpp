#pragma once

#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/detail/findings.hpp"

namespace perfmodel {

extern const ResultFields<Finding> kFindingFields;

/// Results that `analyze` prints.
struct FindingsReport {
  std::vector<std::string> files;
  std::vector<std::string> rewrites;  ///< applied to each graph first
  std::string gpu;                    ///< empty: not known
  Findings found;
};
/// The document without its head.
OrderedJson findings_json(const FindingsReport& report);

}  // namespace perfmodel
