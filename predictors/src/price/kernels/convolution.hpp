#pragma once

#include <limits>

#include "price/terms.hpp"

namespace perfmodel::kernels {

/// What 3x3 filters with stride 1 cost by the two Winograd algorithms of the libraries [us];
/// infinite where they do not apply. fp32 on vector units.
struct ConvolutionTimes {
  double fused_winograd = std::numeric_limits<double>::infinity();
  double staged_winograd = std::numeric_limits<double>::infinity();
};
ConvolutionTimes convolution_times(const ConvolutionShape& shape, double bytes, const Gpu& gpu);

}  // namespace perfmodel::kernels
