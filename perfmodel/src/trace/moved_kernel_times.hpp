#pragma once

#include <optional>
#include <string>
#include <utility>

#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {

/// Durations of a trace's kernels on a GPU, and notes for the user.
struct MovedKernelTimes {
  KernelTimes times;
  KernelTimes::Use use = KernelTimes::Use::kAll;
  std::optional<std::string> sentence;  ///< none if a prediction itself says it
};

/// Times of the kernels that no model can price from the graph of `trace`: all kernels if it has no
/// shapes, else kernels that no rule knows and captured graphs, which have no ops.
///
/// They are as measured; on another GPU than the trace's, scaled by family: products by the peak of
/// the arithmetic in the kernel's name (fp8, half types, TF32, else fp32; TF32 on AMD is fp32),
/// everything else by memory bandwidth, copies between host and device by PCIe bandwidth.
/// Collectives stay as measured. If the trace's GPU is not known, all times stay, which is refused
/// if they would be most of the step.
///
/// Errors as in kernel_times; a trace without shapes or with captured graphs whose GPU is not
/// known.
Result<MovedKernelTimes> kernel_times_on(
    const ExecutionGraph& graph, const Trace& trace, const Gpu& gpu,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations = {});

}  // namespace perfmodel
