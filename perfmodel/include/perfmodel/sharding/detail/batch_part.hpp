#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace perfmodel::sharding {

/// The parts of one training batch, in the order in which a rank begins them if software launches
/// everything at once; parts from kIdPermute on are those that only TorchRec's steps have.
enum class BatchPart : std::uint8_t {
  kIdExchange,  ///< this batch's, or, if batches are pipelined, a later one's during the rest
  kPrefetch,    ///< rows of a later batch from host memory, during the rest
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
  kIdPermute,           ///< ids that arrived, put into the order of the tables
  kJoin,                ///< vectors that arrived, joined
  kInteractionForward,  ///< before the host waits; after it, part of the top MLP
  kInteractionBackward,
  kFirstReduce,  ///< gradients that are reduced before the last bucket is full
  kSplit,        ///< gradients, put into the order of the exchange
  kTableReduce,  ///< gradients of data-parallel tables, if they are reduced by themselves
  kIdSizes,      ///< ids of the next batch, put into the order of the exchange
  kHost,         ///< time in which the device waits for the host
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

}  // namespace perfmodel::sharding
