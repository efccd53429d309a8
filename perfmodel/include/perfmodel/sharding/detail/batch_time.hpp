#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "perfmodel/sharding/detail/shard_load.hpp"

namespace perfmodel::sharding {

/// The parts of one training batch, in the order in which a rank begins them.
enum class BatchPart : std::uint8_t {
  kIdExchange,  ///< of this batch; of a later one, beside the rest, if batches are pipelined
  kPrefetch,    ///< rows of a later batch from host memory, beside the rest
  kLookupForward,
  kVectorExchange,  ///< all-to-all of pooled vectors, reduce-scatter of partial sums
  kBottomForward,
  kTopForward,
  kTopBackward,
  kGradientExchange,  ///< the vector exchange backward
  kBottomBackward,
  kLookupBackward,  ///< and the tables' optimizer
  kAllReduce,       ///< gradients of the dense part and of data-parallel tables
  kDenseOptimizer,
  kCount
};
inline constexpr std::size_t kBatchParts = static_cast<std::size_t>(BatchPart::kCount);
std::string_view to_string(BatchPart part);  ///< "lookup forward"

/// Time of each part, alone [us].
class PartTimes {
 public:
  double& operator[](BatchPart part) { return us_[static_cast<std::size_t>(part)]; }
  double operator[](BatchPart part) const { return us_[static_cast<std::size_t>(part)]; }

 private:
  std::array<double, kBatchParts> us_{};
};

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
  std::vector<BatchRank> ranks;
  std::size_t limiting_rank = 0;  ///< whose lookups the others wait for longest
  /// Parts of the critical path and the time they add to it [us]; the sum is the device's part of
  /// `predicted_us` before calibration.
  PartTimes critical;
  std::vector<std::int32_t> ranks_over_memory;
};

}  // namespace perfmodel::sharding
