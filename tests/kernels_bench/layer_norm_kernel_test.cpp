#include "kernels_bench/kernels/layer_norm.hpp"

#include "kernel_support.hpp"

namespace kernels_bench {
namespace layer_norm_kernel_test {

template <class T>
class LayerNormKernel : public testing::Test {};
TYPED_TEST_SUITE(LayerNormKernel, TensorTypes, TypeNames);

template <class T, int N, bool kCached, bool kWholeBlock>
void expect_layer_norm(std::int64_t rows, std::int64_t cols, int lanes) {
  const EmulatedLaunch launch{.blocks = 2, .shared_bytes = 64};
  const auto x = Tensor<T>::random(rows * cols, 1, 2, 4);
  const auto dy = Tensor<T>::random(rows * cols, 2);
  const auto weight = Tensor<T>::random(cols, 3, 0.5, 1.5), bias = Tensor<T>::random(cols, 4);
  Tensor<T> y(rows * cols), dx(rows * cols);
  Tensor<float> mean(rows), rstd(rows);
  run_emulated(
      kernels::LayerNormForward<T, N, kCached, kWholeBlock>{x.data(), weight.data(), bias.data(),
                                                            y.data(), mean.data(), rstd.data(),
                                                            rows, cols, lanes},
      launch);
  run_emulated(
      kernels::LayerNormBackward<T, N, kCached, kWholeBlock>{x.data(), dy.data(), weight.data(),
                                                             mean.data(), rstd.data(), dx.data(),
                                                             rows, cols, lanes},
      launch);
  for (std::int64_t r = 0; r < rows; ++r) {
    const reference::Row x_row = x.row(r * cols, cols);
    const auto statistics = reference::statistics(x_row);
    EXPECT_NEAR(mean[r], statistics.mean, 1e-5);
    EXPECT_NEAR(rstd[r] / statistics.rstd, 1, 1e-4);
    expect_near(y.row(r * cols, cols), reference::layer_norm(x_row, weight.all(), bias.all()),
                10 * kTolerance<T>);
    if (cols == 1) continue;  // gradient zero up to rounding
    expect_near(
        dx.row(r * cols, cols),
        reference::layer_norm_gradient(x_row, dy.row(r * cols, cols), weight.all(), statistics),
        20 * kTolerance<T>);
  }
}

TYPED_TEST(LayerNormKernel, ShortRowsInRegisters) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_layer_norm<TypeParam, 1, true, false>(5, 1, 1);
  expect_layer_norm<TypeParam, 1, true, false>(1, 5, 4);
  expect_layer_norm<TypeParam, 1, true, false>(19, 31, 4);
  expect_layer_norm<TypeParam, kWidest, true, false>(9, 3 * kWidest, 4);
}

TYPED_TEST(LayerNormKernel, ABlockPerRowInRegisters) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_layer_norm<TypeParam, 1, true, true>(3, 127, 1);
  expect_layer_norm<TypeParam, kWidest, true, true>(3, 64 * kWidest, 1);
}

TYPED_TEST(LayerNormKernel, ABlockPerRowReadTwice) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_layer_norm<TypeParam, 1, false, true>(3, 7, 1);
  expect_layer_norm<TypeParam, 1, false, true>(3, 333, 1);
  expect_layer_norm<TypeParam, kWidest, false, true>(3, 150 * kWidest, 1);
}

}  // namespace layer_norm_kernel_test
}  // namespace kernels_bench
