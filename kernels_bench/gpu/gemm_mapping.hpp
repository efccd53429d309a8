#pragma once

#include <cstdint>

#include "../core/cases.hpp"

namespace kernels_bench::gpu {

/// The call of a BLAS library, whose matrices are column-major:
/// output [m, n] = op(first) [m, k] op(second) [k, n], with leading dimensions (`ld`) and strides
/// between the matrices of a batch, in elements.
struct ColumnMajorGemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool first_transposed = false, second_transposed = false;
  std::int64_t first_ld = 0, second_ld = 0, output_ld = 0;
  std::int64_t first_stride = 0, second_stride = 0, output_stride = 0;
};

/// A row-major matrix is the transposed column-major one, and C^T = op(B)^T op(A)^T: the first
/// operand is B's memory, the second A's, m and n change places, transpositions stay.
inline ColumnMajorGemm column_major(const GemmCase& point) {
  return {.m = point.n,
          .n = point.m,
          .k = point.k,
          .batch = point.batch,
          .first_transposed = point.b_transposed,
          .second_transposed = point.a_transposed,
          .first_ld = point.b_transposed ? point.k : point.n,
          .second_ld = point.a_transposed ? point.m : point.k,
          .output_ld = point.n,
          .first_stride = point.k * point.n,
          .second_stride = point.m * point.k,
          .output_stride = point.m * point.n};
}

}  // namespace kernels_bench::gpu
