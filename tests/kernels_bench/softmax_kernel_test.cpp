#include "kernels_bench/kernels/softmax.hpp"

#include "kernel_support.hpp"

namespace kernels_bench {
namespace softmax_kernel_test {

template <class T>
class SoftmaxKernel : public testing::Test {};
TYPED_TEST_SUITE(SoftmaxKernel, TensorTypes, TypeNames);

template <class T, int N, bool kCached, bool kWholeBlock>
void expect_softmax(std::int64_t rows, std::int64_t cols, int lanes) {
  const EmulatedLaunch launch{.blocks = 2, .shared_bytes = 64};
  const auto x = Tensor<T>::random(rows * cols, 1, -2, 2);
  const auto dy = Tensor<T>::random(rows * cols, 2);
  Tensor<T> y(rows * cols), dx(rows * cols);
  run_emulated(
      kernels::SoftmaxForward<T, N, kCached, kWholeBlock>{x.data(), y.data(), rows, cols, lanes},
      launch);
  run_emulated(kernels::SoftmaxBackward<T, N, kCached, kWholeBlock>{y.data(), dy.data(), dx.data(),
                                                                    rows, cols, lanes},
               launch);
  for (std::int64_t r = 0; r < rows; ++r) {
    const reference::Row y_row = y.row(r * cols, cols);
    expect_near(y_row, reference::softmax(x.row(r * cols, cols)), 2 * kTolerance<T>);
    // Gradients cancel: dy - sum(dy y). A row of one column has one of zero up to rounding of y.
    if (cols == 1) continue;
    expect_near(dx.row(r * cols, cols), reference::softmax_gradient(y_row, dy.row(r * cols, cols)),
                5 * kTolerance<T>);
  }
}

TYPED_TEST(SoftmaxKernel, ShortRowsInRegisters) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_softmax<TypeParam, 1, true, false>(5, 1, 1);
  expect_softmax<TypeParam, 1, true, false>(1, 5, 4);
  expect_softmax<TypeParam, 1, true, false>(19, 31, 4);  // 4 lanes of 8 loads: one to spare
  expect_softmax<TypeParam, kWidest, true, false>(9, 3 * kWidest, 4);
}

TYPED_TEST(SoftmaxKernel, ABlockPerRowInRegisters) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_softmax<TypeParam, 1, true, true>(3, 127, 1);
  expect_softmax<TypeParam, kWidest, true, true>(3, 64 * kWidest, 1);
  expect_softmax<TypeParam, kWidest, true, true>(1, 33 * kWidest, 1);
}

TYPED_TEST(SoftmaxKernel, ABlockPerRowReadTwice) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_softmax<TypeParam, 1, false, true>(3, 7, 1);  // some threads see nothing
  expect_softmax<TypeParam, 1, false, true>(3, 333, 1);
  expect_softmax<TypeParam, kWidest, false, true>(3, 150 * kWidest, 1);
}

TEST(SoftmaxKernel, LargeInputsDoNotOverflow) {
  Tensor<float> x(4), y(4);
  for (int i = 0; i < 4; ++i) x[i] = 1000.0F + static_cast<float>(i);
  run_emulated(kernels::SoftmaxForward<float, 1, false, true>{x.data(), y.data(), 1, 4, 1},
               {.shared_bytes = 64});
  expect_near(y.all(), reference::softmax({0, 1, 2, 3}), 2e-6);
}

}  // namespace softmax_kernel_test
}  // namespace kernels_bench
