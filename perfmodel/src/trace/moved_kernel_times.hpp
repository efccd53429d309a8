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
  KernelTimes::Use use = KernelTimes::Use::kAll;
  std::optional<std::string> sentence;  ///< none where a prediction itself says what it took
};

/// Times of the kernels that no model can price from the graph of `trace`: of all where it has no
/// shapes, else of what no rule knows and of captured graphs, which have no ops.
///
/// They are as measured; on a GPU that is not the trace's, scaled by family: products by the peak
/// of the arithmetic that the kernel's name tells (fp8, half types, TF32, else fp32; TF32 on AMD is
/// fp32), everything else by the bandwidth of memory, copies between host and device by that of
/// PCIe. Collectives stay as measured. If the trace's GPU is not known, all times stay, which is
/// refused where they would be most of the step.
///
/// Errors: those of kernel_times; a trace without shapes or with captured graphs whose GPU is not
/// known.
Result<MovedKernelTimes> kernel_times_on(
    const ExecutionGraph& graph, const Trace& trace, const Gpu& gpu,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations = {});

}  // namespace perfmodel
