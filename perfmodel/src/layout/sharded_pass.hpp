#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

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

struct ShardedPass {
  double end_us = 0;      ///< end of the last reduce-scatter
  double compute_us = 0;  ///< sum of all forwards and backwards
  double comm_us = 0;     ///< sum of all gathers and scatters
};

/// One forward and backward pass over `count` units; `unit(i)` is the i-th. Two clocks, the compute
/// stream's and the communication stream's, go through the requests in issue order.
///
/// - Forward: the gather of unit i waits for the end of the forward of unit i - max_inflight; the
///   forward of a unit waits for its gather.
/// - Backward runs from the last unit to the first. A unit that still holds its parameters needs no
///   gather (`keep_last_unit`, `keeps_params`, or all of them without `reshard_after_forward`). The
///   gather of the last unit is issued at the end of forward.
/// - `kPre`: the gather of unit i-1 is issued when unit i becomes next on the compute stream,
///   before the reduce-scatter of unit i. `kPost`, `kNone`: after it. With one stream both give the
///   same times.
/// - A reduce-scatter starts after its backward.
///
/// O(count). Times are not checked.
template <class UnitOf>
ShardedPass sharded_pass(std::size_t count, const UnitOf& unit, const FsdpOptions& options = {}) {
  const auto inflight = static_cast<std::size_t>(options.max_inflight_all_gathers);
  thread_local std::vector<double> forward_end, gathered;
  forward_end.resize(count);
  gathered.assign(count, 0);
  double compute = 0, comm = 0;  // when each stream is free
  ShardedPass pass;
  for (std::size_t i = 0; i < count; ++i) {
    const FsdpUnit& u = unit(i);
    const double room = inflight > 0 && i >= inflight ? forward_end[i - inflight] : 0;
    comm = std::max(comm, room) + u.all_gather_us;
    pass.comm_us += u.all_gather_us + u.reduce_scatter_us;
    compute = std::max(compute, comm) + u.forward_us;
    forward_end[i] = compute;
    pass.compute_us += u.forward_us + u.backward_us;
  }
  const auto gather = [&](std::size_t i, double after) {
    const bool holds = !options.reshard_after_forward || unit(i).keeps_params ||
                       (options.keep_last_unit && i + 1 == count);
    if (holds) return;
    comm = std::max(comm, after) + unit(i).all_gather_us;
    pass.comm_us += unit(i).all_gather_us;
    gathered[i] = comm;
  };
  gather(count - 1, compute);
  for (std::size_t i = count; i-- > 0;) {
    const bool ahead = options.backward_prefetch == BackwardPrefetch::kPre;
    if (ahead && i > 0) gather(i - 1, compute);
    compute = std::max(compute, gathered[i]) + unit(i).backward_us;
    comm = std::max(comm, compute) + unit(i).reduce_scatter_us;
    if (!ahead && i > 0) gather(i - 1, comm);
  }
  pass.end_us = comm;
  return pass;
}

}  // namespace perfmodel::parallel
