#pragma once

#include <cstdint>
#include <vector>

#include "moves.hpp"

namespace perfmodel::advice {

/// How DistributedDataParallel gathers gradients: sizes of buckets, gradients in pieces, views.
std::vector<Axis> bucket_axes(const Job& job);

/// Fewer GPUs than `world`.
Axis ranks_axis(std::int64_t world);

}  // namespace perfmodel::advice
