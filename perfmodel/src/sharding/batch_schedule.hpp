#pragma once

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/batch_time.hpp"

namespace perfmodel::sharding {

/// Puts the parts of one batch of all ranks in order; fills `predicted_us` (of the device),
/// `waiting_us`, `limiting_rank` and `critical`. `pipelined`: ids and prefetched rows are those of
/// a later batch and run beside the rest.
Result<void> schedule_batch(BatchTime& batch, bool pipelined);

}  // namespace perfmodel::sharding
