#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"

/// Data-parallel training with bucketed all-reduce (PyTorch DistributedDataParallel).
namespace perfmodel::parallel {

/// One parameter's gradient in one backward pass. The index in the list is the parameter index.
struct Gradient {
  double bytes = 0;
  double ready_us = 0;     ///< end of its computation, from the start of backward
  std::int32_t group = 0;  ///< gradients of different groups (dtype, device) never share a bucket
  bool sparse = false;     ///< embedding with sparse gradients: a bucket of its own
};

struct DdpOptions {
  /// PyTorch: 1 MiB, unless the user sets the cap (then the cap).
  double first_bucket_bytes = 1024.0 * 1024;
  double bucket_cap_bytes = 25 * 1024.0 * 1024;  ///< of all buckets but the first
  /// Iteration 1 without the search for unused parameters: no limit, so one bucket per group.
  bool first_iteration_single_bucket = false;
};

struct DdpBucket {
  std::vector<std::int32_t> params;  ///< in the order of readiness
  double bytes = 0;
  double ready_us = 0;  ///< its last gradient
  double start_us = 0, end_us = 0;
};

struct DdpTimeline {
  std::vector<DdpBucket> buckets;  ///< in launch order
  double backward_end_us = 0;      ///< the last gradient
  double comm_end_us = 0;          ///< the last all-reduce (`backward_end_us` without buckets)
  double exposed_comm_us = 0;      ///< comm_end_us - backward_end_us
};

/// Bytes of one bucket to the duration of its all-reduce [us].
using AllReduceCost = std::function<double(double bytes)>;

/// Cuts gradients into buckets, times left 0 but `ready_us`:
///
/// Gradients are taken in the order of `ready_us`, ties by falling parameter index, and cut by
/// `gradient_buckets` (perfmodel/graph/gradient_buckets.hpp). Errors: negative, NaN or infinite
/// bytes or times, limits that are no number >= 0.
Result<std::vector<DdpBucket>> assign_ddp_buckets(std::span<const Gradient> gradients,
                                                  const DdpOptions& options = {});

/// The buckets' all-reduces on one communication stream, in bucket order: start = max(bucket ready,
/// stream free). O(n log n). Errors: as above, and a cost that is negative or no number.
Result<DdpTimeline> ddp_timeline(std::span<const Gradient> gradients, const DdpOptions& options,
                                 const AllReduceCost& all_reduce_us);

}  // namespace perfmodel::parallel
