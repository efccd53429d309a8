#pragma once

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::kernels {

/// What was measured of kernels that quantise to such numbers on the GPU's architecture; null where
/// nothing was.
const QuantizeKernel* measured_quantize(DType dtype, Scaling scaling, const Gpu& gpu);

}  // namespace perfmodel::kernels
