#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/what_if.hpp"

namespace perfmodel {

using RewriteByName =
    std::function<Result<NamedRewrite>(const std::string& name, const std::string& value)>;

/// One thing to do so that a step fits.
struct WayToFit {
  std::string how;      ///< flags of `memory`: "--recompute full"
  WhatIfAnswer answer;  ///< the step done so
  double slowdown = 1;  ///< time per sample over the time on a GPU with enough memory
};
struct WaysToFit {
  std::vector<WayToFit> fitting;  ///< the cheapest first
  /// If nothing fits: the way that needs the least memory. Its answer may have no times.
  std::optional<WayToFit> least;
  std::size_t tried = 0;
};

/// Ways to make a step fit into a GPU that is too small for it. `as_is`: its memory there. Ways
/// that cannot fit, nor need the least memory, are not rewritten (they count as tried). Errors: of
/// the step's price, if there is a way.
Result<WaysToFit> ways_to_fit(const WhatIfTarget& here, const ExecutionGraph& graph,
                              const PredictedMemory& as_is, const RewriteByName& rewrite_by_name);

}  // namespace perfmodel
