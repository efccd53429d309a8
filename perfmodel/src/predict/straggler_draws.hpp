#pragma once

#include <cstdint>

#include "perfmodel/sync/detail/sync_job.hpp"

namespace perfmodel::sync {

/// Time of steps [first, first + count) of a worker. The factor of step k only depends on (seed,
/// worker, k), so that the same step takes the same time under every scheme; the sum of more than
/// 1,024 steps is drawn as a whole, from a normal distribution.
double steps_us(const Worker& worker, std::size_t index, std::uint64_t seed, std::int64_t first,
                std::int64_t count);

}  // namespace perfmodel::sync
