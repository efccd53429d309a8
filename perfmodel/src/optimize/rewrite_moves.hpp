#pragma once

#include <vector>

#include "moves.hpp"
#include "perfmodel/detail/advice.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel::advice {

/// Every rewrite of the allowed families. Errors: names of none, families that contradict the
/// objective or the job.
Result<std::vector<Axis>> rewrite_axes(const Gpu& gpu, const Job& job,
                                       const OptimizeOptions& options);

}  // namespace perfmodel::advice
