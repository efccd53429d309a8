#include "kernels_bench/gpu/sample_sums.hpp"

#include <gmock/gmock.h>

#include <array>
#include <numeric>
#include <vector>

namespace kernels_bench::gpu {
namespace sample_sums_test {

using Direction = ConvolutionCase::Direction;

/// Small whole numbers: fp32 holds all sums exactly.
std::vector<float> numbers(std::int64_t count, int start) {
  std::vector<float> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(start)) % 23) - 11;
  }
  return result;
}

TEST(SampleSums, GemmElementByHand) {
  // A^T is [2, 3] in memory as [3, 2]; B^T as [2, 3]; C = A B + bias, element (1, 0).
  std::vector<float> a = {1, 2, 3, 4, 5, 6}, b = {1, 10, 100, 2, 20, 200}, bias = {1000, 0};
  const GemmCase point{
      .m = 2, .n = 2, .k = 3, .a_transposed = true, .b_transposed = true, .bias = true};
  const GemmBuffers buffers{.a = a.data(), .b = b.data(), .bias = bias.data()};
  EXPECT_EQ(gemm_sum(point, buffers, 2, 0, 1), 2 + 40 + 600 + 1000);
  EXPECT_EQ(gemm_sum(point, buffers, 2, 0, 2) + gemm_sum(point, buffers, 2, 1, 2), 1642);
}

TEST(SampleSums, ForwardConvolutionByHand) {
  // One row of zeros around [[1, 2], [3, 4]]: the filter of 1..9 is shifted over them by one, with
  // its centre on the first number, then on the last.
  std::vector<float> input = {1, 2, 3, 4}, filter(9);
  std::iota(filter.begin(), filter.end(), 1.0F);
  const ConvolutionTensors t{
      .point = {.n = 1, .c = 1, .h = 2, .w = 2, .k = 1, .filter = 3, .pad = 1, .stride = 1},
      .buffers = {.input = input.data(), .filter = filter.data()}};
  ASSERT_EQ(t.result_count(), 4);
  EXPECT_EQ(convolution_sum(t, 0, 0, 1), 1 * 5 + 2 * 6 + 3 * 8 + 4 * 9);
  EXPECT_EQ(convolution_sum(t, 3, 0, 1), 1 * 1 + 2 * 2 + 3 * 4 + 4 * 5);
}

/// All elements of the direction's result, over three lanes.
std::vector<float> whole_result(ConvolutionTensors t, Direction direction) {
  t.point.direction = direction;
  std::vector<float> result(static_cast<std::size_t>(t.result_count()));
  for (std::size_t i = 0; i < result.size(); ++i) {
    double sum = 0;
    for (int lane = 0; lane < 3; ++lane) {
      sum += convolution_sum(t, static_cast<std::int64_t>(i), lane, 3);
    }
    result[i] = static_cast<float>(sum);
  }
  return result;
}

double inner_product(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(SampleSums, GradientsAreTheAdjointsOfTheForwardConvolution) {
  // <conv(x, w), dy> = <x, dx> = <w, dw> for every x, w and dy.
  for (const auto& [filter_side, pad, stride] :
       {std::array<int, 3>{1, 0, 1}, {3, 1, 1}, {3, 1, 2}, {5, 2, 3}, {2, 0, 2}, {7, 3, 2}}) {
    const ConvolutionCase point{.n = 2,
                                .c = 3,
                                .h = 8,
                                .w = 9,
                                .k = 4,
                                .filter = filter_side,
                                .pad = pad,
                                .stride = stride};
    ConvolutionTensors t{.point = point, .buffers = {}};
    std::vector<float> x = numbers(t.input_count(), 1), w = numbers(t.filter_count(), 5),
                       dy = numbers(t.output_count(), 9);
    t.buffers = {.input = x.data(), .filter = w.data(), .output = dy.data()};
    const double product = inner_product(whole_result(t, Direction::kForward), dy);
    EXPECT_NE(product, 0);
    EXPECT_EQ(inner_product(whole_result(t, Direction::kInputGradient), x), product) << filter_side;
    EXPECT_EQ(inner_product(whole_result(t, Direction::kWeightGradient), w), product)
        << filter_side;
  }
}

}  // namespace sample_sums_test
}  // namespace kernels_bench::gpu
