#pragma once

#include <span>

#include "host_program.hpp"

namespace perfmodel {

/// Shortens elementwise kernels, softmaxes and norms whose inputs kernels before them left in the
/// cache; a model's price is of inputs in DRAM. `kernels[i]` answers `questions[i]`, in the order
/// of their calls. Prices still do not fall as tensors grow. Changes nothing if
/// prices know the cache (`Architecture::warm_inputs`).
void take_warm_inputs(const ExecutionGraph& graph, std::span<const KernelQuestion> questions,
                      const Gpu& gpu, std::span<PredictedKernel> kernels);

}  // namespace perfmodel
