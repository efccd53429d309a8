#include "price/kernel_work.hpp"

/// C[b, m, n] = A[b, m, k] B[b, k, n] (+ bias[n]), s bytes per element:
///
///   FLOP    2 b m n k   (the bias is not counted)
///   read    b (m k + k n) s + n s_C
///   written b m n s_C
///
/// s_C = s, but 2 for fp8 inputs: libraries accumulate in fp32 and write half types.
namespace perfmodel {

KernelWork gemm_work(const GemmShape& shape, DType dtype, bool matrix_units) {
  const double b = static_cast<double>(shape.batch), m = static_cast<double>(shape.m),
               n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  const double size = size_in_bytes(dtype);
  const double output_size = dtype == DType::kFloat8 ? 2 : size;
  return {.family = KernelFamily::kGemm,
          .dtype = dtype,
          .matrix_units = matrix_units,
          .flop = {2 * b * m * n * k},
          .bytes_read = {b * (m * k + k * n) * size + (shape.has_bias ? n * output_size : 0)},
          .bytes_written = {b * m * n * output_size},
          .shape = shape};
}

}  // namespace perfmodel
