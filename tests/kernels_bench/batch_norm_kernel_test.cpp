#include "kernels_bench/kernels/batch_norm.hpp"

#include "kernel_support.hpp"

namespace kernels_bench {
namespace batch_norm_kernel_test {

template <class T>
class BatchNormKernel : public testing::Test {};
TYPED_TEST_SUITE(BatchNormKernel, TensorTypes, TypeNames);

/// Values of one channel, images one after another.
template <class T>
reference::Row channel_of(const Tensor<T>& tensor, const kernels::BatchNormShape& shape,
                          std::int64_t channel) {
  reference::Row values;
  for (std::int64_t image = 0; image < shape.images; ++image) {
    const auto plane = tensor.row((image * shape.channels + channel) * shape.pixels, shape.pixels);
    values.insert(values.end(), plane.begin(), plane.end());
  }
  return values;
}

template <class T, int N>
void expect_batch_norm(std::int64_t images, std::int64_t channels, std::int64_t pixels,
                       std::int64_t parts) {
  const kernels::BatchNormShape shape(images, channels, pixels, N);
  const EmulatedLaunch launch{.blocks = 2, .shared_bytes = 64};
  const std::int64_t elements = images * channels * pixels;
  const auto x = Tensor<T>::random(elements, 1, 2, 4), dy = Tensor<T>::random(elements, 2);
  const auto weight = Tensor<float>::random(channels, 3, 0.5, 1.5);
  const auto bias = Tensor<float>::random(channels, 4);
  Tensor<T> y(elements), dx(elements);
  Tensor<float> mean(channels), rstd(channels), dbias(channels), dweight(channels);
  Tensor<float> first(channels * parts), second(channels * parts);
  const std::int64_t part_vectors = kernels::ceil_divide(shape.channel_vectors(), parts);

  const kernels::BatchNormStatistics<T, N, false> forward{x.data(),
                                                          nullptr,
                                                          nullptr,
                                                          nullptr,
                                                          {first.data(), second.data()},
                                                          {mean.data(), rstd.data()},
                                                          shape,
                                                          parts,
                                                          part_vectors};
  run_emulated(forward, launch);
  if (parts > 1) run_emulated(kernels::BatchNormCombine<T, N, false>{forward}, launch);
  run_emulated(kernels::BatchNormApply<T, N>{x.data(), y.data(), mean.data(), rstd.data(),
                                             weight.data(), bias.data(), shape},
               launch);
  const kernels::BatchNormStatistics<T, N, true> backward{x.data(),
                                                          dy.data(),
                                                          mean.data(),
                                                          rstd.data(),
                                                          {first.data(), second.data()},
                                                          {dbias.data(), dweight.data()},
                                                          shape,
                                                          parts,
                                                          part_vectors};
  run_emulated(backward, launch);
  if (parts > 1) run_emulated(kernels::BatchNormCombine<T, N, true>{backward}, launch);
  run_emulated(kernels::BatchNormInputGradient<T, N>{x.data(), dy.data(), dx.data(), mean.data(),
                                                     rstd.data(), weight.data(), dbias.data(),
                                                     dweight.data(), shape},
               launch);

  for (std::int64_t c = 0; c < channels; ++c) {
    const auto x_row = channel_of(x, shape, c), dy_row = channel_of(dy, shape, c);
    const auto statistics = reference::statistics(x_row);
    const auto sums = reference::batch_norm_sums(x_row, dy_row, statistics);
    reference::Row expected_y, expected_dx;
    for (std::size_t i = 0; i < x_row.size(); ++i) {
      expected_y.push_back((x_row[i] - statistics.mean) * statistics.rstd * weight[c] + bias[c]);
      expected_dx.push_back(reference::batch_norm_gradient(x_row[i], dy_row[i], weight[c],
                                                           statistics, sums, shape.count()));
    }
    expect_near(channel_of(y, shape, c), expected_y, 10 * kTolerance<T>);
    if (x_row.size() == 1) continue;  // gradient zero up to rounding
    EXPECT_NEAR(dbias[c], sums.dbias, 1e-4);
    EXPECT_NEAR(dweight[c], sums.dweight, 1e-3);
    expect_near(channel_of(dx, shape, c), expected_dx, 20 * kTolerance<T>);
  }
}

TYPED_TEST(BatchNormKernel, OddPlanes) {
  expect_batch_norm<TypeParam, 1>(1, 1, 1, 1);
  expect_batch_norm<TypeParam, 1>(3, 5, 49, 1);
  expect_batch_norm<TypeParam, 1>(40, 3, 1, 1);
}

TYPED_TEST(BatchNormKernel, Vectors) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_batch_norm<TypeParam, kWidest>(3, 4, 5 * kWidest, 1);
  expect_batch_norm<TypeParam, kWidest>(1, 2, kWidest, 1);
}

TYPED_TEST(BatchNormKernel, ChannelsInParts) {
  constexpr int kWidest = kernels::kWidest<TypeParam>;
  expect_batch_norm<TypeParam, kWidest>(7, 2, 9 * kWidest, 4);
  expect_batch_norm<TypeParam, 1>(3, 2, 77, 2);
}

}  // namespace batch_norm_kernel_test
}  // namespace kernels_bench
