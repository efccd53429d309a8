#pragma once

#include <optional>
#include <string>
#include <utility>

#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// Durations of a trace's kernels on a GPU, and what the user should know of them.
struct MovedKernelTimes {
  KernelTimes times;
  std::string sentence;
};

/// The kernels of a trace as measured; on a GPU that is not the trace's, scaled by family, for want
/// of sizes: products by the peak of fp32 arithmetic, everything else by the bandwidth of memory,
/// copies between host and device by that of PCIe. Collectives stay as measured.
///
/// Errors: those of kernel_times; a trace whose GPU is not known, for another GPU.
Result<MovedKernelTimes> kernel_times_on(
    const ExecutionGraph& graph, const Trace& trace, const Gpu& gpu,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations);

}  // namespace perfmodel
