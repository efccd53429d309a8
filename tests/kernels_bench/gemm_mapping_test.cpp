#include "kernels_bench/gpu/gemm_mapping.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace kernels_bench::gpu {
namespace gemm_mapping_test {

using Numbers = std::vector<double>;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Small whole numbers, all different in their neighbourhood.
Numbers numbers(std::int64_t count, int start) {
  Numbers result(index(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<double>((i * 7 + static_cast<std::size_t>(start)) % 23) - 11;
  }
  return result;
}

/// The product that the case describes: row-major, transposed operands with their axes swapped.
Numbers row_major_product(const GemmCase& g, const Numbers& a, const Numbers& b) {
  Numbers c(index(g.batch * g.m * g.n));
  for (std::int64_t s = 0; s < g.batch; ++s) {
    for (std::int64_t i = 0; i < g.m; ++i) {
      for (std::int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < g.k; ++k) {
          const std::int64_t in_a = g.a_transposed ? k * g.m + i : i * g.k + k;
          const std::int64_t in_b = g.b_transposed ? j * g.k + k : k * g.n + j;
          sum += a[index(s * g.m * g.k + in_a)] * b[index(s * g.k * g.n + in_b)];
        }
        c[index((s * g.m + i) * g.n + j)] = sum;
      }
    }
  }
  return c;
}

/// A BLAS library's result of a call.
Numbers blas(const ColumnMajorGemm& g, const Numbers& first, const Numbers& second) {
  Numbers output(index(g.batch * g.m * g.n));
  const auto element = [](std::int64_t row, std::int64_t col, std::int64_t ld, bool transposed) {
    return transposed ? col + row * ld : row + col * ld;
  };
  for (std::int64_t s = 0; s < g.batch; ++s) {
    for (std::int64_t i = 0; i < g.m; ++i) {
      for (std::int64_t j = 0; j < g.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < g.k; ++k) {
          const auto at_first = element(i, k, g.first_ld, g.first_transposed);
          const auto at_second = element(k, j, g.second_ld, g.second_transposed);
          sum += first[index(s * g.first_stride + at_first)] *
                 second[index(s * g.second_stride + at_second)];
        }
        output[index(s * g.output_stride + i + j * g.output_ld)] = sum;
      }
    }
  }
  return output;
}

TEST(GemmMapping, GivesTheRowMajorProductForAllTranspositionsAndBatches) {
  for (const bool a_transposed : {false, true}) {
    for (const bool b_transposed : {false, true}) {
      for (const std::int64_t batch : {1, 3}) {
        const GemmCase point{.batched = batch > 1,
                             .batch = batch,
                             .m = 3,
                             .n = 5,
                             .k = 4,
                             .a_transposed = a_transposed,
                             .b_transposed = b_transposed};
        const Numbers a = numbers(batch * 3 * 4, 1), b = numbers(batch * 4 * 5, 6);
        // B's memory is the first operand.
        EXPECT_EQ(blas(column_major(point), b, a), row_major_product(point, a, b))
            << a_transposed << b_transposed << batch;
      }
    }
  }
}

TEST(GemmMapping, LeadingDimensionsHoldTheRowsThatLieInMemory) {
  // BLAS libraries refuse a leading dimension below the rows of the matrix as stored.
  for (const bool transposed : {false, true}) {
    const ColumnMajorGemm call = column_major(
        {.m = 6, .n = 1, .k = 9, .a_transposed = transposed, .b_transposed = transposed});
    EXPECT_GE(call.first_ld, call.first_transposed ? call.k : call.m);
    EXPECT_GE(call.second_ld, call.second_transposed ? call.n : call.k);
    EXPECT_GE(call.output_ld, call.m);
  }
}

TEST(GemmMapping, BiasOfTheRowMajorColumnsIsOneOfTheOutputsRows) {
  // A BLAS epilogue adds element i of the bias to row i of its output, of which there are m.
  EXPECT_EQ(column_major({.m = 6, .n = 7, .k = 9, .bias = true}).m, 7);
}

}  // namespace gemm_mapping_test
}  // namespace kernels_bench::gpu
