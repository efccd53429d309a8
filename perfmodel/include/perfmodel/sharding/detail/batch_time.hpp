#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "perfmodel/sharding/detail/batch_part.hpp"
#include "perfmodel/sharding/detail/shard_load.hpp"
#include "perfmodel/sharding/detail/step_needs.hpp"

namespace perfmodel::sharding {

/// HBM of a rank [bytes].
struct RankMemory {
  double weights = 0, optimizer = 0, cache = 0, buffers = 0, dense = 0, reserve = 0;
  double total() const { return weights + optimizer + cache + buffers + dense + reserve; }
};

struct BatchRank {
  PartTimes parts;
  double waiting_us = 0;  ///< in collectives, before their last rank has come
  ShardLoad load;
  RankMemory memory;
  double host_bytes = 0;  ///< rows in host memory
};

/// One batch under one plan.
struct BatchTime {
  double predicted_us = 0, low_us = 0, high_us = 0;
  double host_us = 0;  ///< that the host needs; 0: it keeps ahead
  /// Of a TorchRec step: what its host does. Work of the device that is the same on all ranks is
  /// added to their parts; here it is left only while plans are compared.
  std::optional<BatchWork> step;
  std::vector<BatchRank> ranks;
  std::size_t limiting_rank = 0;  ///< whose lookups the others wait for longest
  /// Parts of the critical path and the time they add to it [us]; the sum is the device's part of
  /// `predicted_us` before calibration.
  PartTimes critical;
  std::vector<std::int32_t> ranks_over_memory;
};

}  // namespace perfmodel::sharding
