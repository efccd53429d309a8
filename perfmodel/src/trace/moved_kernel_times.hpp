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

/// Times of the kernels that no model can price from the graph of `trace`: of all where it has no
/// shapes, else of those of captured graphs, which have no ops; nothing where there are none.
///
/// They are as measured; on a GPU that is not the trace's, scaled by family: products by the peak
/// of the arithmetic that the kernel's name tells (fp8, half types, TF32, else fp32; TF32 on AMD is
/// fp32), everything else by the bandwidth of memory, copies between host and device by that of
/// PCIe. Collectives stay as measured.
///
/// Errors: those of kernel_times; a trace whose GPU is not known, for another GPU.
Result<std::optional<MovedKernelTimes>> kernel_times_on(
    const ExecutionGraph& graph, const Trace& trace, const Gpu& gpu,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations = {});

/// Whether there are any.
bool has_kernels_without_model(const ExecutionGraph& graph, const Trace& trace);

}  // namespace perfmodel
