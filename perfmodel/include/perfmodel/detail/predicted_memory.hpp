#pragma once

#include <string>
#include <string_view>

#include "perfmodel/graph/detail/static_memory.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// GPU memory of one rank in a step, in bytes (docs/memory.md).
struct PredictedMemory {
  StaticMemory held;                ///< however large the batch is; with FSDP the shard of one rank
  double activation_bytes = 0;      ///< kept for the backward pass when the forward pass ends
  double peak_allocated_bytes = 0;  ///< torch.cuda.max_memory_allocated()
  double peak_reserved_bytes = 0;   ///< torch.cuda.max_memory_reserved()
  double context_bytes = 0;         ///< memory of the process outside of PyTorch's allocator
  /// Bytes at the peak; they add up to `needed_bytes()`. The excess of blocks over storages, and of
  /// segments over blocks, counts as reserve.
  MemoryByPurpose by_purpose{};
  /// Bytes that may be needed in addition: tensors that Python variables keep, the model's last
  /// result, tensors without a storage in the graph, a workspace of convolutions, buffers of
  /// collectives.
  double unsure_bytes = 0;
  double device_bytes = 0;  ///< as the driver shows them

  double static_bytes() const { return held.total(); }
  double needed_bytes() const { return peak_reserved_bytes + context_bytes; }
  /// Leaves out unused bytes in the allocator, which gives them back before it fails.
  double low_bytes() const { return peak_allocated_bytes + context_bytes; }
  double high_bytes() const { return needed_bytes() + unsure_bytes; }
  bool static_fits() const { return static_bytes() <= device_bytes; }
  bool fits() const { return needed_bytes() <= device_bytes; }
  double headroom_bytes() const { return device_bytes - needed_bytes(); }  ///< below 0: lacking
};

/// Why nothing is predicted of the memory that a trace's step takes.
inline constexpr std::string_view kMemoryOfTraceUnknown =
    "memory is not predicted: a trace does not record which tensors are the same";

/// A size in GiB with three digits, or whole ones above 999: "12.4", "1530".
std::string rough_gib(double bytes);

/// "12.4 GiB of 39.4 GiB: weights 1.2, gradients 1.2, ..., activations 5.1".
std::string memory_text(const PredictedMemory& memory);

/// The warning about memory that cannot fit; empty if it does.
std::string memory_warning(const PredictedMemory& memory, const Gpu& gpu);

}  // namespace perfmodel
