#include <cmath>

#include "price/kernel_work.hpp"

/// C[b, m, n] = A[b, m, k] B[b, k, n] (+ bias[n]), s bytes per number:
///
///   FLOP    2 b m n k   (the bias is not counted)
///   read    b (m k + k n) s + scales + n s_C
///   written b m n s_C
///
/// s_C = s, but 2 for inputs of 8 and 4 bits: libraries accumulate in fp32 and write half types.
/// If A is quantised on the way, its bf16 numbers are read and its quantised ones written too.
namespace perfmodel {
namespace {

bool is_narrow(DType dtype) { return dtype == DType::kFloat8 || dtype == DType::kFloat4; }

/// Weights in 8 bits share scales in blocks of 128 x 128, or per column.
double weight_bytes(double k, double n, DType dtype, Scaling scaling) {
  if (dtype == DType::kFloat8 && scaling == Scaling::kBlock) {
    return k * n + 4 * std::ceil(k / 128) * std::ceil(n / 128);
  }
  return quantized_bytes(n, k, dtype, scaling);
}

}  // namespace

double bytes_per_number(DType dtype) {
  return dtype == DType::kFloat4 ? 0.5 : static_cast<double>(size_in_bytes(dtype));
}

double quantized_bytes(double rows, double cols, DType dtype, Scaling scaling) {
  const double numbers = rows * cols * bytes_per_number(dtype);
  if (dtype == DType::kFloat4) return numbers + rows * std::ceil(cols / 16);
  if (scaling == Scaling::kToken) return numbers + 4 * rows;
  return scaling == Scaling::kBlock ? numbers + 4 * rows * std::ceil(cols / 128) : numbers;
}

KernelWork gemm_work(const GemmShape& shape, DType dtype, bool matrix_units) {
  const double b = static_cast<double>(shape.batch), m = static_cast<double>(shape.m),
               n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  const double size = bytes_per_number(dtype);
  const bool narrow = is_narrow(dtype);
  const double output_size = narrow ? 2 : size;
  const double a = narrow ? quantized_bytes(m, k, dtype, shape.scaling) : m * k * size;
  const double weights = narrow ? weight_bytes(k, n, dtype, shape.scaling) : k * n * size;
  const double quantized = shape.quantizes_a ? a : 0, given = shape.quantizes_a ? 2 * m * k : 0;
  return {.family = KernelFamily::kGemm,
          .dtype = dtype,
          .matrix_units = matrix_units,
          .flop = {2 * b * m * n * k},
          .bytes_read = {b * (a + weights + given) + (shape.has_bias ? n * output_size : 0)},
          .bytes_written = {b * (m * n * output_size + quantized)},
          .shape = shape};
}

}  // namespace perfmodel
