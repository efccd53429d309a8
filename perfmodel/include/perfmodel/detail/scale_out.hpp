#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perfmodel/graph/detail/bucket_limits.hpp"

namespace perfmodel {

struct Topology;

enum class ParallelStrategy : std::uint8_t {
  kDdp,   ///< every rank holds the model; gradients are all-reduced in buckets
  kFsdp,  ///< every rank holds a shard; parameters are gathered, gradients reduce-scattered
};
std::string_view to_string(ParallelStrategy strategy);

/// Options of DistributedDataParallel; a limit closes a bucket once it is reached.
struct DdpOptions {
  double first_bucket_bytes = kFirstBucketBytes;
  double bucket_cap_bytes = kBucketCapBytes;  ///< for all buckets after the first
  bool delayed = false;  ///< gradients are reduced together, after the backward pass (Apex)
};

/// A graph of one rank run by `world` data-parallel ranks, all alike.
struct ScaleOut {
  std::int64_t world = 1;
  ParallelStrategy strategy = ParallelStrategy::kDdp;
  const Topology* topology = nullptr;  ///< null: the default one of the GPU
  /// Multiplies the wire term of collectives: compute that runs at the same time takes bandwidth
  /// and SMs from them. 1: off.
  double interference = 1;
  DdpOptions ddp;
  bool ddp_copies_gradients = true;  ///< into the bucket and back (no gradient_as_bucket_view)
  double fsdp_unit_bytes = 100e6;    ///< consecutive parameters form units of at least this size
  int fsdp_gathers_in_flight = 2;    ///< gathered units alive at once
};

/// Gathered units of FSDP, and the whole gradients of the one whose backward pass runs.
inline double gathered_at_once(double largest_unit_bytes, const ScaleOut& how) {
  return ((how.fsdp_gathers_in_flight > 1 ? how.fsdp_gathers_in_flight : 1) + 1) *
         largest_unit_bytes;
}

/// The time and bytes that scaling out added to one step.
struct ScaledOut {
  ParallelStrategy strategy = ParallelStrategy::kDdp;
  std::int64_t world = 0;
  std::string network;  ///< title of the topology
  int nodes = 0;
  std::size_t collectives = 0;  ///< per step, of all kinds
  double parameter_bytes = 0;
  double gathered_bytes =
      0;  ///< FSDP: the most that is gathered, or waits to be scattered, at once
  /// The graph reduces its gradients itself: its collectives were priced for `world` ranks, none
  /// added.
  bool own_collectives = false;
};

}  // namespace perfmodel
