#include "price/expert_load.hpp"
#include "price/kernel_work.hpp"

/// Elements of s bytes, results of s_C (2 for fp8 inputs); E experts of which `touched` get a row:
///
///                   FLOP            read                                      written
///   grouped_gemm    2 rows n k      (rows k + touched k n) s                  rows n s_C
///   experts         6 T topk H I    (T H + 3 touched H I) s                   T H s_C
///
/// What the kernels of the experts hand on to each other is the model's business.
namespace perfmodel {
namespace {

double result_bytes(DType dtype) { return dtype == DType::kFloat8 ? 2 : size_in_bytes(dtype); }

}  // namespace

KernelWork grouped_gemm_work(const GroupedGemmShape& shape, DType dtype, bool matrix_units) {
  const double rows = static_cast<double>(shape.rows), n = static_cast<double>(shape.n),
               k = static_cast<double>(shape.k), size = size_in_bytes(dtype);
  const double touched = grouped_load(shape).touched;
  return {.family = KernelFamily::kGroupedGemm,
          .dtype = dtype,
          .matrix_units = matrix_units,
          .flop = {2 * rows * n * k},
          .bytes_read = {(rows * k + touched * k * n) * size},
          .bytes_written = {rows * n * result_bytes(dtype)},
          .shape = shape};
}

KernelWork experts_work(const ExpertsShape& shape, DType dtype, bool matrix_units) {
  const double tokens = static_cast<double>(shape.tokens), size = size_in_bytes(dtype);
  const double hidden = static_cast<double>(shape.hidden),
               matrix = hidden * static_cast<double>(shape.inter);
  const double touched = expert_load(shape).touched;
  return {.family = KernelFamily::kExperts,
          .dtype = dtype,
          .matrix_units = matrix_units,
          .flop = {6 * tokens * static_cast<double>(shape.topk) * matrix},
          .bytes_read = {(tokens * hidden + 3 * touched * matrix) * size},
          .bytes_written = {tokens * hidden * result_bytes(dtype)},
          .shape = shape};
}

}  // namespace perfmodel
