#pragma once

#include <string>
#include <vector>

#include "moves.hpp"
#include "perfmodel/detail/advice.hpp"

namespace perfmodel::advice {

/// The families that a search may take moves of, in the order of `advice_families()`, unless the
/// options name some. Errors: unknown names, families that contradict the objective or the job.
Result<std::vector<std::string>> allowed_families(const Job& job, const OptimizeOptions& options);

}  // namespace perfmodel::advice
