#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"

/// Fully sharded data parallelism (PyTorch FSDP, ZeRO-2 and ZeRO-3).
namespace perfmodel::parallel {

/// One FSDP unit (usually a transformer block). All times in us.
struct FsdpUnit {
  double all_gather_us = 0, reduce_scatter_us = 0;
  double forward_us = 0;
  double backward_us = 0;     ///< with recomputation, if any
  bool keeps_params = false;  ///< never resharded after forward (PyTorch's root unit)
};

enum class BackwardPrefetch : std::uint8_t { kPre, kPost, kNone };

struct FsdpOptions {
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  /// `limit_all_gathers`: units whose parameters may be gathered ahead in forward; 0: no limit.
  std::int32_t max_inflight_all_gathers = 2;
  bool keep_last_unit = true;  ///< the last unit is not resharded between forward and backward
  bool reshard_after_forward = true;  ///< FULL_SHARD (ZeRO-3); false: SHARD_GRAD_OP (ZeRO-2)
};

struct FsdpEvent {
  enum class Kind : std::uint8_t { kAllGather, kForward, kBackward, kReduceScatter } kind;
  std::int32_t unit = 0;  ///< 0-based
  bool in_backward = false;
  double start_us = 0, end_us = 0;
};

struct FsdpTimeline {
  double forward_end_us = 0;
  double backward_compute_end_us = 0;
  double last_reduce_scatter_end_us = 0;
  double compute_us = 0;          ///< sum of all forwards and backwards
  double exposed_total_us = 0;    ///< last_reduce_scatter_end_us - compute_us
  std::vector<FsdpEvent> events;  ///< in issue order
};

/// One forward and backward pass over units 1..L. One compute stream, one communication stream that
/// runs its requests in issue order.
///
/// - Forward: the gather of unit i waits for the end of the forward of unit i - max_inflight; the
///   forward of a unit waits for its gather.
/// - Backward runs L..1. A unit that still holds its parameters needs no gather (`keep_last_unit`,
///   `keeps_params`, or all of them without `reshard_after_forward`). The gather of unit L is
///   issued at the end of forward.
/// - `kPre`: the gather of unit i-1 is issued when unit i becomes next on the compute stream,
/// before
///   the reduce-scatter of unit i. `kPost`, `kNone`: after it. With one stream both give the same
///   times.
/// - A reduce-scatter starts after its backward.
///
/// O(units). Errors: no units, times that are negative or no finite numbers, max_inflight < 0.
Result<FsdpTimeline> fsdp_timeline(std::span<const FsdpUnit> units,
                                   const FsdpOptions& options = {});

struct ShardedPass {
  double end_us = 0;      ///< last_reduce_scatter_end_us
  double compute_us = 0;  ///< sum of all forwards and backwards
  double comm_us = 0;     ///< sum of all gathers and scatters
};

/// The same end for one unit, `layers` equal ones and one more, without a task graph: two clocks,
/// the compute stream's and the communication stream's, go through the requests in issue order.
/// Times are not checked.
ShardedPass sharded_pass(const FsdpUnit& first, const FsdpUnit& layer, const FsdpUnit& last,
                         std::size_t layers, const FsdpOptions& options = {});

}  // namespace perfmodel::parallel
