#include "price/kernel_work.hpp"

/// n = rows cols numbers in bf16 become ones of 8 or 4 bits, with a scale of 4 bytes per tensor,
/// row or 128 elements of a row; in 4 bits one of a byte per 16 elements (nvfp4):
///
///   FLOP 4 n (magnitude, maximum, product, rounding)   read 2 n   written n s + scales
///
/// One pass: the scale of a whole tensor is known before (delayed scaling).
namespace perfmodel {

KernelWork quantize_work(std::int64_t rows, std::int64_t cols, DType dtype, Scaling scaling) {
  const double n = static_cast<double>(rows) * static_cast<double>(cols);
  return {.family = KernelFamily::kQuantize,
          .dtype = dtype,
          .flop = {4 * n},
          .bytes_read = {2 * n},
          .bytes_written = {quantized_bytes(static_cast<double>(rows), static_cast<double>(cols),
                                            dtype, scaling)},
          .shape = RowShape{.rows = rows, .cols = cols, .scaling = scaling}};
}

}  // namespace perfmodel
