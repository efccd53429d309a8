#pragma once

#include "perfmodel/sharding/detail/batch_time.hpp"

namespace perfmodel::sharding {

struct BatchOrder {
  /// The exchange of ids and the prefetch serve a later batch and run in parallel with the rest.
  bool pipelined = true;
  /// The all-reduce has a communicator and a stream of its own: it does not wait for exchanges.
  bool reduces_beside = false;
};

/// Puts the parts of one batch of all ranks in order; fills `predicted_us` (of the device),
/// `waiting_us`, `limiting_rank` and `critical`.
void schedule_batch(BatchTime& batch, const BatchOrder& order);

/// The same, only for `predicted_us`, to the bit.
double batch_makespan_us(const BatchTime& batch, const BatchOrder& order);

}  // namespace perfmodel::sharding
