#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/detail/predicted_memory.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Data-parallel ranks that split their persistent tensors, as ZeRO does (Rajbhandari et al. 2020).
struct ZeroSharding {
  std::int64_t world = 1;
  int stage = 0;  ///< 1: optimizer state, 2: gradients too, 3: weights too, as FSDP does
};

/// A storage that is alive at the peak.
struct LargeStorage {
  double bytes = 0;
  MemoryPurpose purpose = MemoryPurpose::kTemporaries;
  std::string made_by;              ///< top-level op; empty: there before the step
  std::int64_t node = -1;           ///< id of that op's node
  std::vector<std::int64_t> shape;  ///< shape of the largest tensor in it
  DType dtype = DType::kUnknown;
};

/// Allocated bytes after an op that changed them.
struct MemoryPoint {
  std::int32_t node = 0;  ///< index
  MemoryByPurpose bytes{};
};

/// Memory of one training step of a graph on a GPU, in steady state.
struct MemoryReport {
  PredictedMemory memory;
  std::string peak_op;                ///< top-level op during which the most is allocated
  std::int64_t peak_node = -1;        ///< id of that op's node
  MemoryByPurpose each_peak{};        ///< the peak of each purpose, at its own time
  std::vector<LargeStorage> largest;  ///< at the peak, largest first
  std::vector<MemoryPoint> curve;     ///< one point per node that allocates or frees
  std::size_t activations = 0;  ///< storages (not empty) that live from forward to backward pass
  std::vector<std::string> without_sizes;  ///< see StorageLifetimes
};

struct MemoryOptions {
  std::size_t largest = 10;
  bool curve = false;
  bool expandable_segments = false;  ///< PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
  /// Applies to a graph of one rank with that rank's batch.
  ZeroSharding zero = {};
};

/// Memory of the first step of `graph` on `gpu` (null: no GPU, no context): the graph's storages by
/// their lifetimes, the BLAS library's workspace, the context, and the blocks that PyTorch's
/// caching allocator reserves over two steps. No errors: a graph without storages holds nothing.
MemoryReport memory_report(const ExecutionGraph& graph, const Gpu* gpu,
                           const MemoryOptions& options = {});

/// Bytes that one more sample adds to the storages at the peak: the mean over twice the `batch`
/// that the graph has.
/// Leaves out the allocator's rounding, which goes up and down from batch to batch. Errors: as for
/// `set_batch_size`.
Result<double> bytes_per_sample(const ExecutionGraph& graph, std::int64_t batch);

/// The largest batch with which `graph` fits.
struct LargestBatch {
  std::int64_t batch = 0;  ///< 0: not even one sample fits
  PredictedMemory memory;  ///< with that batch
  PredictedMemory next;    ///< with one sample more: does not fit
  int rewrites = 0;        ///< number of batches tried
};

/// Finds the batch by rewriting the graph, not by extrapolation: `batch` fits, `batch` + 1 does
/// not. Reserved memory does not grow evenly, so a slightly larger batch may fit by chance. Errors:
/// as for `set_batch_size`; a graph that still fits with 2^30 samples.
Result<LargestBatch> largest_batch(const ExecutionGraph& graph, const Gpu& gpu,
                                   bool expandable_segments = false, const ZeroSharding& zero = {});

}  // namespace perfmodel
