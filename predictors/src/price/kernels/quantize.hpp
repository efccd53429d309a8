#pragma once

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::kernels {

/// Measurements of kernels that quantise to such numbers on the GPU's architecture; null if there
/// are none.
const QuantizeKernel* measured_quantize(DType dtype, Scaling scaling, const Gpu& gpu);

}  // namespace perfmodel::kernels
