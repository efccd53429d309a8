#include "kernels_bench/kernels/reductions.hpp"

#include "kernel_support.hpp"

namespace kernels_bench {
namespace reductions_kernel_test {

template <class T>
class ReductionKernel : public testing::Test {};
TYPED_TEST_SUITE(ReductionKernel, TensorTypes, TypeNames);

template <class Op>
double reduce(const reference::Row& row) {
  return std::is_same_v<Op, kernels::Max> ? reference::max(row) : reference::sum(row);
}

template <class Op, class T, int N, bool kWholeBlock>
void expect_rows(std::int64_t rows, std::int64_t cols, int lanes) {
  const auto in = Tensor<T>::random(rows * cols, 1, -1, 2);
  Tensor<T> out(rows);
  run_emulated(kernels::ReduceRows<Op, T, T, N, kWholeBlock>{in.data(), out.data(), rows, cols, 1,
                                                             cols, lanes},
               {.blocks = 3, .shared_bytes = 64});
  reference::Row expected;
  for (std::int64_t r = 0; r < rows; ++r) expected.push_back(reduce<Op>(in.row(r * cols, cols)));
  expect_near(out.all(), expected, kTolerance<T>);
}

TYPED_TEST(ReductionKernel, RowsByLanes) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_rows<kernels::Sum, TypeParam, 1, false>(7, 1, 1);
  expect_rows<kernels::Sum, TypeParam, 1, false>(1, 3, 2);
  expect_rows<kernels::Sum, TypeParam, 1, false>(50, 37, 4);
  expect_rows<kernels::Max, TypeParam, 1, false>(13, 101, 4);
  expect_rows<kernels::Sum, TypeParam, kWidest, false>(21, 24, 4);
  expect_rows<kernels::Max, TypeParam, kWidest, false>(21, 200, 2);
}

TYPED_TEST(ReductionKernel, RowsByBlocks) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_rows<kernels::Sum, TypeParam, 1, true>(1, 1, 1);
  expect_rows<kernels::Sum, TypeParam, 1, true>(4, 1031, 1);
  expect_rows<kernels::Max, TypeParam, 1, true>(4, 77, 1);
  expect_rows<kernels::Sum, TypeParam, kWidest, true>(5, 1048, 1);
  expect_rows<kernels::Max, TypeParam, kWidest, true>(5, 8, 1);
}

TYPED_TEST(ReductionKernel, PartsOfRowsAreCombined) {
  const std::int64_t rows = 2, cols = 1001, parts = 3, part_cols = 400;
  const auto in = Tensor<TypeParam>::random(rows * cols, 1, 0, 1);
  Tensor<float> partial(rows * parts);
  Tensor<TypeParam> out(rows);
  run_emulated(
      kernels::ReduceRows<kernels::Sum, TypeParam, float, 1, true>{in.data(), partial.data(), rows,
                                                                   cols, parts, part_cols, 1},
      {.blocks = 4, .shared_bytes = 64});
  run_emulated(
      kernels::ReduceRows<kernels::Sum, float, TypeParam, 1, false>{partial.data(), out.data(),
                                                                    rows, parts, 1, parts, 4},
      {});
  expect_near(out.all(), {reference::sum(in.row(0, cols)), reference::sum(in.row(cols, cols))},
              kTolerance<TypeParam>);
}

template <class Op, class T, int N>
void expect_columns(std::int64_t rows, std::int64_t cols, std::int64_t parts, int lanes_x) {
  const auto in = Tensor<T>::random(rows * cols, 1, -1, 2);
  Tensor<float> partial(parts * cols);
  Tensor<T> out(cols);
  const std::int64_t part_rows = kernels::ceil_divide(rows, parts);
  using First = kernels::ReduceColumns<Op, T, float, N>;
  run_emulated(First{in.data(), partial.data(), rows, cols, parts, part_rows, lanes_x},
               {.blocks = 3, .shared_bytes = First::shared_bytes(16)});
  using Second = kernels::ReduceColumns<Op, float, T, 1>;
  run_emulated(Second{partial.data(), out.data(), parts, cols, 1, parts, 8},
               {.blocks = 2, .shared_bytes = Second::shared_bytes(16)});
  reference::Row expected;
  for (std::int64_t c = 0; c < cols; ++c) expected.push_back(reduce<Op>(in.row(c, rows, cols)));
  expect_near(out.all(), expected, kTolerance<T>);
}

TYPED_TEST(ReductionKernel, Columns) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_columns<kernels::Sum, TypeParam, 1>(1, 1, 1, 8);
  expect_columns<kernels::Sum, TypeParam, 1>(130, 19, 1, 4);
  expect_columns<kernels::Max, TypeParam, 1>(17, 5, 2, 8);
  expect_columns<kernels::Sum, TypeParam, kWidest>(131, 72, 3, 2);
  expect_columns<kernels::Max, TypeParam, kWidest>(1, 16, 1, 16);
}

}  // namespace reductions_kernel_test
}  // namespace kernels_bench
