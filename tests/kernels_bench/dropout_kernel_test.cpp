#include "kernels_bench/kernels/dropout.hpp"

#include "kernel_support.hpp"

namespace kernels_bench {
namespace dropout_kernel_test {

TEST(Philox, KnownAnswersOfRandom123) {
  const auto zeros = kernels::philox(0, 0);
  const std::uint32_t expected[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(zeros.values[i], expected[i]);
    EXPECT_EQ(reference::philox_word(0, 0, i), expected[i]);
  }
}

template <class T>
class DropoutKernel : public testing::Test {};
TYPED_TEST_SUITE(DropoutKernel, TensorTypes, TypeNames);

TYPED_TEST(DropoutKernel, ForwardAndBackwardFollowTheGenerator) {
  const std::uint64_t seed = 0x123456789abcdef0;
  for (const std::int64_t elements : {1, 7, 8, 401, 2053}) {
    const auto x = Tensor<TypeParam>::random(elements, 1, 0.5, 1);
    const auto dy = Tensor<TypeParam>::random(elements, 2);
    Tensor<TypeParam> y(elements), dx(elements);
    Tensor<std::uint8_t> mask(elements);
    run_emulated(
        kernels::DropoutForward<TypeParam>{x.data(), y.data(), mask.data(), elements, seed},
        {.blocks = 3});
    run_emulated(kernels::DropoutBackward<TypeParam>{dy.data(), mask.data(), dx.data(), elements},
                 {.blocks = 2});
    for (std::int64_t i = 0; i < elements; ++i) {
      const bool keep = reference::dropout_keeps(seed, i);
      ASSERT_EQ(mask[i], keep ? 1 : 0) << i;
      ASSERT_EQ(kernels::to_float(y[i]), keep ? 2 * kernels::to_float(x[i]) : 0) << i;
      ASSERT_EQ(kernels::to_float(dx[i]), keep ? 2 * kernels::to_float(dy[i]) : 0) << i;
    }
  }
}

TEST(DropoutKernel, KeepsAboutHalf) {
  int kept = 0;
  for (std::int64_t i = 0; i < 10000; ++i) kept += reference::dropout_keeps(1, i) ? 1 : 0;
  EXPECT_NEAR(kept, 5000, 250);  // 5 standard deviations
}

}  // namespace dropout_kernel_test
}  // namespace kernels_bench
