#pragma once

#include "perfmodel/sharding/detail/batch_time.hpp"

namespace perfmodel::sharding {

struct BatchOrder {
  /// Ids and prefetched rows are those of a later batch and run beside the rest.
  bool pipelined = true;
  /// The all-reduce has a communicator and a stream of its own: it does not wait for exchanges.
  bool reduces_beside = false;
};

/// Puts the parts of one batch of all ranks in order; fills `predicted_us` (of the device),
/// `waiting_us`, `limiting_rank` and `critical`.
void schedule_batch(BatchTime& batch, const BatchOrder& order);

/// The same for `predicted_us` alone, to the bit.
double batch_makespan_us(const BatchTime& batch, const BatchOrder& order);

}  // namespace perfmodel::sharding
