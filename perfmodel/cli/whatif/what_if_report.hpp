#pragma once

#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/what_if.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// One rewrite flag with the values that are crossed with those of the others.
struct WhatIfAxis {
  std::string name;                 ///< "batch"
  std::vector<std::string> values;  ///< "" where the graph stays as it is
};

/// What `whatif` prints and draws. The first answer is the baseline: the graph as it is, on the
/// first target.
struct WhatIfReport {
  std::string graph_file;
  std::vector<WhatIfAxis> axes;
  std::vector<std::vector<std::string>> values;  ///< per variant, one per axis
  std::vector<Variant> variants;
  std::vector<WhatIfTarget> targets;
  std::vector<WhatIfAnswer> answers;
  std::string models;
  bool at_largest_batch = false;
  std::vector<std::string> warnings;

  const WhatIfAnswer& baseline() const { return answers.front(); }
};

/// Times the baseline's throughput: samples per second where both inputs tell their batch, else
/// steps per second. Not above 0: one of them has no answer.
double speed_up(const WhatIfReport& report, const WhatIfAnswer& answer);

std::string what_if_text(const WhatIfReport& report, bool bold);
Json what_if_json(const WhatIfReport& report);
std::string what_if_csv(const WhatIfReport& report);

/// Throughput over the axis with several numbers (batch, sequence) where there is one, a line per
/// other variant and GPU; else a bar per variant and GPU.
Result<std::string> what_if_svg(const WhatIfReport& report);

}  // namespace perfmodel::cli
