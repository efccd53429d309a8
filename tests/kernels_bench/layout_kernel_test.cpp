#include "kernel_support.hpp"
#include "kernels_bench/kernels/concat.hpp"
#include "kernels_bench/kernels/gather.hpp"
#include "kernels_bench/kernels/hashed_product.hpp"
#include "kernels_bench/kernels/transpose.hpp"
#include "kernels_bench/kernels/tril.hpp"

namespace kernels_bench {
namespace layout_kernel_test {

template <class T>
class LayoutKernel : public testing::Test {};
TYPED_TEST_SUITE(LayoutKernel, TensorTypes, TypeNames);

TYPED_TEST(LayoutKernel, Transpose) {
  using Body = kernels::Transpose<TypeParam>;
  struct Shape {
    std::int64_t batch, rows, cols;
  };
  for (const auto [batch, rows, cols] :
       {Shape{1, 1, 1}, Shape{1, 1, 100}, Shape{2, 65, 3}, Shape{1, 64, 64}, Shape{3, 33, 70}}) {
    const auto in = Tensor<TypeParam>::random(batch * rows * cols, 1);
    Tensor<TypeParam> out(batch * rows * cols);
    run_emulated(Body{in.data(), out.data(), batch, rows, cols},
                 {.blocks = 2, .threads = Body::kThreads, .shared_bytes = Body::kSharedBytes});
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t c = 0; c < cols; ++c) {
        expect_near(out.row((b * cols + c) * rows, rows), in.row(b * rows * cols + c, rows, cols),
                    0);
      }
    }
  }
}

template <class T, int N>
void expect_concat(std::int64_t rows, std::int64_t cols_a, std::int64_t cols_b) {
  const auto a = Tensor<T>::random(rows * cols_a, 1), b = Tensor<T>::random(rows * cols_b, 2);
  const std::int64_t cols = cols_a + cols_b;
  Tensor<T> out(rows * cols);
  run_emulated(kernels::Concat<T, N>{a.data(), b.data(), out.data(), rows, cols_a / N, cols_b / N,
                                     kernels::Divider(cols / N, rows * cols / N)},
               {.blocks = 2});
  for (std::int64_t r = 0; r < rows; ++r) {
    expect_near(out.row(r * cols, cols_a), a.row(r * cols_a, cols_a), 0);
    expect_near(out.row(r * cols + cols_a, cols_b), b.row(r * cols_b, cols_b), 0);
  }
}

TYPED_TEST(LayoutKernel, Concat) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_concat<TypeParam, 1>(1, 1, 1);
  expect_concat<TypeParam, 1>(37, 3, 8);
  expect_concat<TypeParam, kWidest>(41, kWidest, 2 * kWidest);
}

template <class T, int N>
void expect_gather(std::int64_t table_rows, std::int64_t count, std::int64_t cols) {
  const auto table = Tensor<T>::random(table_rows * cols, 1);
  const auto indices = random_indices(count, table_rows, 2);
  Tensor<T> out(count * cols);
  run_emulated(kernels::Gather<T, N>{table.data(), indices.data(), out.data(), count, cols / N,
                                     kernels::Divider(cols / N, count * cols / N)},
               {.blocks = 3});
  for (std::int64_t i = 0; i < count; ++i) {
    expect_near(out.row(i * cols, cols), table.row(indices[i] * cols, cols), 0);
  }
}

TYPED_TEST(LayoutKernel, Gather) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_gather<TypeParam, 1>(1, 1, 1);
  expect_gather<TypeParam, 1>(10, 101, 3);
  expect_gather<TypeParam, kWidest>(10, 99, 3 * kWidest);
}

TEST(LayoutKernel, ScatterAddSumsDuplicates) {
  const std::int64_t table_rows = 5, count = 97, cols = 7;
  const auto in = Tensor<float>::random(count * cols, 1);
  const auto before = Tensor<float>::random(table_rows * cols, 2);
  const auto indices = random_indices(count, table_rows, 3);
  auto table = before;
  run_emulated(kernels::ScatterAdd{in.data(), indices.data(), table.data(), count, cols,
                                   kernels::Divider(cols, count * cols)},
               {.blocks = 3});
  reference::Row expected = before.all();
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t c = 0; c < cols; ++c) expected[indices[i] * cols + c] += in[i * cols + c];
  }
  expect_near(table.all(), expected, 1e-6);
}

TYPED_TEST(LayoutKernel, TrilForwardAndBackward) {
  for (const std::int64_t features : {2, 3, 9, 27}) {
    const std::int64_t batch = 5, triangle = kernels::triangle_size(features);
    const std::int64_t square = features * features;
    const auto in = Tensor<TypeParam>::random(batch * square, 1);
    Tensor<TypeParam> packed(batch * triangle), unpacked(batch * square);
    run_emulated(
        kernels::TrilForward<TypeParam>{in.data(), packed.data(), batch, features, triangle,
                                        kernels::Divider(triangle, batch * triangle)},
        {.blocks = 3});
    run_emulated(
        kernels::TrilBackward<TypeParam>{packed.data(), unpacked.data(), batch, features, triangle,
                                         kernels::Divider(square, batch * square),
                                         kernels::Divider(features, square)},
        {.blocks = 3});
    std::int64_t next = 0;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < features; ++i) {
        for (std::int64_t j = 0; j < features; ++j) {
          const std::int64_t at = b * square + i * features + j;
          const float expected = j < i ? kernels::to_float(in[at]) : 0;
          if (j < i) {
            ASSERT_EQ(kernels::to_float(packed[next++]), expected);
          }
          ASSERT_EQ(kernels::to_float(unpacked[at]), expected);
        }
      }
    }
  }
}

TEST(LayoutKernel, TriangleRowsOfLargeMatrices) {
  for (const std::int64_t row : {1, 2, 1000, 46341, 100000}) {
    const std::int64_t first = row * (row - 1) / 2;
    EXPECT_EQ(kernels::triangle_row(first), row);
    EXPECT_EQ(kernels::triangle_row(first + row - 1), row);
  }
}

// Small tiles, so that 16 threads of the emulation have several in each direction.
using SmallTiles = kernels::HashedTiles<16, 16, 8, 4>;

// Row-major weight [k, n] as its places say.
template <bool kByElements>
std::vector<double> looked_up(const Tensor<float>& array, std::int64_t k, std::int64_t n) {
  const kernels::HashedPlaces places{array.size()};
  std::vector<double> weight;
  for (std::int64_t r = 0; r < k; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      const std::int64_t at =
          kByElements ? places(r, c, 1) : places(r / 8, c / 16, 8 * 16) + r % 8 * 16 + c % 16;
      weight.push_back(array[at]);
    }
  }
  return weight;
}

template <bool kByElements>
void expect_hashed_product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t elements) {
  const auto x = Tensor<float>::random(m * k, 1), array = Tensor<float>::random(elements, 2);
  Tensor<float> y(m * n);
  using Body = kernels::HashedProduct<kByElements, SmallTiles>;
  run_emulated(Body{x.data(), array.data(), y.data(), m, n, k, {elements}},
               {.blocks = 2, .threads = Body::kThreads, .shared_bytes = Body::kSharedBytes});
  const std::vector<double> weight = looked_up<kByElements>(array, k, n);
  for (std::int64_t r = 0; r < m; ++r) {
    reference::Row expected(static_cast<std::size_t>(n), 0);
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t c = 0; c < n; ++c) {
        expected[static_cast<std::size_t>(c)] +=
            static_cast<double>(x[r * k + i]) * weight[static_cast<std::size_t>(i * n + c)];
      }
    }
    expect_near(y.row(r * n, n), expected, 1e-5);
  }
}

template <bool kByElements>
void expect_hashed_gradient(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t elements) {
  const auto x = Tensor<float>::random(m * k, 1), gradient = Tensor<float>::random(m * n, 2);
  const auto before = Tensor<float>::random(elements, 3);
  auto array = before;
  using Body = kernels::HashedWeightGradient<kByElements, SmallTiles>;
  run_emulated(Body{x.data(), gradient.data(), array.data(), m, n, k, {elements}},
               {.blocks = 2, .threads = Body::kThreads, .shared_bytes = Body::kSharedBytes});
  // The places of an array that holds its own numbers are the places.
  Tensor<float> numbers(elements);
  for (std::int64_t i = 0; i < elements; ++i) numbers[i] = static_cast<float>(i);
  const std::vector<double> place = looked_up<kByElements>(numbers, k, n);
  reference::Row expected = before.row(0, elements);
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t c = 0; c < n; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < m; ++r) {
        sum += static_cast<double>(x[r * k + i]) * static_cast<double>(gradient[r * n + c]);
      }
      expected[static_cast<std::size_t>(place[static_cast<std::size_t>(i * n + c)])] += sum;
    }
  }
  expect_near(array.row(0, elements), expected, 1e-5);
}

TEST(LayoutKernel, HashedProducts) {
  expect_hashed_product<false>(1, 1, 1, 128);
  expect_hashed_product<false>(19, 37, 21, 300);
  expect_hashed_product<true>(19, 37, 21, 40);
  expect_hashed_gradient<false>(19, 37, 21, 300);
  expect_hashed_gradient<true>(5, 17, 9, 12);
}

}  // namespace layout_kernel_test
}  // namespace kernels_bench
