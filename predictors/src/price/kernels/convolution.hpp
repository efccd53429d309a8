#pragma once

#include <limits>

#include "price/terms.hpp"

namespace perfmodel::kernels {

/// Times of 3x3 filters with stride 1 by the libraries' two Winograd algorithms [us]; infinite if
/// they do not apply. fp32 on vector units.
struct ConvolutionTimes {
  double fused_winograd = std::numeric_limits<double>::infinity();
  double staged_winograd = std::numeric_limits<double>::infinity();
};
ConvolutionTimes convolution_times(const ConvolutionShape& shape, double bytes, const Gpu& gpu);

}  // namespace perfmodel::kernels
