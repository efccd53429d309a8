#include <algorithm>

#include "price/kernel_work.hpp"

/// Counted as direct convolution, whatever algorithm a library takes; s bytes per element:
///
///   FLOP   2 n k p q (c / groups) r s                       in every pass
///   input  n c h w s,  filter k (c / groups) r s s,  output n k p q s
///
/// The pass says which of the three is written; the other two are read.
namespace perfmodel {

KernelWork convolution_work(const ConvolutionShape& shape, DType dtype, bool matrix_units) {
  const auto product = [](auto... factors) { return (1.0 * ... * static_cast<double>(factors)); };
  const std::int64_t channels = shape.c / std::max<std::int64_t>(1, shape.groups);
  const double size = size_in_bytes(dtype);
  const double input = product(shape.n, shape.c, shape.h, shape.w) * size;
  const double filter = product(shape.k, channels, shape.r, shape.s) * size;
  const double output = product(shape.n, shape.k, shape.p, shape.q) * size;
  double read = input + filter, written = output;
  if (shape.pass == ConvolutionShape::Pass::kInputGradient) {
    read = output + filter;
    written = input;
  } else if (shape.pass == ConvolutionShape::Pass::kWeightGradient) {
    read = input + output;
    written = filter;
  }
  return {.family = KernelFamily::kConvolution,
          .dtype = dtype,
          .matrix_units = matrix_units,
          .flop = {2 * product(shape.n, shape.k, shape.p, shape.q, channels, shape.r, shape.s)},
          .bytes_read = {read},
          .bytes_written = {written},
          .shape = shape};
}

std::int64_t convolution_output(std::int64_t size, std::int64_t filter, std::int64_t pad,
                                std::int64_t stride) {
  const std::int64_t reach = size + 2 * pad - filter;
  return reach < 0 ? 0 : reach / std::max<std::int64_t>(1, stride) + 1;
}

}  // namespace perfmodel
