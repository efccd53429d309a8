#pragma once

#include <cstdint>
#include <span>

#include "host_program.hpp"

namespace perfmodel {

/// Multiplies time and range.
void scale(Price& price, double factor);

/// Multiplies kernels, copies and sets; collectives stay.
void scale_device(HostProgram& program, double factor);

/// The outermost of `node` and the nodes above it that holds the time of its kernels, or -1.
std::int32_t giver_of_time(const ExecutionGraph& graph, std::int32_t node);

/// Multiplies each kernel's time by the factors of its node and of those above it.
void scale_as_told(const ExecutionGraph& graph, std::span<const KernelQuestion> questions,
                   std::span<PredictedKernel> kernels);

/// The kernels of one item. Kernels under a node that holds their time divide it in proportion to
/// their prices so far; equally, if these are 0.
void give_times(const ExecutionGraph& graph, std::span<const KernelQuestion> questions,
                std::span<PredictedKernel> kernels);

}  // namespace perfmodel
