#pragma once

#include <cstdint>

#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

inline constexpr std::int64_t kMostGpus = std::int64_t{1} << 20;  ///< in a job

/// Errors (kImpossible): sizes below 1, or so large that nothing can count them.
Result<void> check_layout_job(const LayoutJob& job);

/// Errors (kImpossible): the same of a layout too, parts that do not divide, combinations that are
/// not modelled.
Result<void> check_layout(const LayoutJob& job, const ParallelLayout& layout);

}  // namespace perfmodel
