#include "kernels_bench/kernels/portability.hpp"

#include <cmath>
#include <limits>

#include "kernel_support.hpp"

namespace kernels_bench {
namespace portability_kernel_test {

using kernels::from_float;
using kernels::to_float;

/// Value of a half by the definition of IEEE 754 binary16.
double value_of(Half half) {
  const int exponent = half.bits >> 10 & 0x1f, fraction = half.bits & 0x3ff;
  const double sign = (half.bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Half, EveryValueIsReadAsDefined) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const double expected = value_of(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(to_float(half))) << bits;
      continue;
    }
    ASSERT_EQ(to_float(half), expected) << bits;
    ASSERT_EQ(from_float<Half>(to_float(half)).bits, half.bits) << bits;
  }
}

TEST(Half, RoundsToNearestAndTiesToEven) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const Half below{static_cast<std::uint16_t>(bits)};
    const Half above{static_cast<std::uint16_t>(bits + 1)};
    const auto middle = static_cast<float>((value_of(below) + value_of(above)) / 2);
    ASSERT_EQ(from_float<Half>(middle).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(from_float<Half>(std::nextafter(middle, 0.0F)).bits, bits) << bits;
    ASSERT_EQ(from_float<Half>(std::nextafter(middle, INFINITY)).bits, bits + 1) << bits;
  }
}

TEST(Half, OverflowsToInfinity) {
  EXPECT_EQ(from_float<Half>(65519.996F).bits, 0x7bff);
  EXPECT_EQ(from_float<Half>(65520.0F).bits, 0x7c00);
  EXPECT_EQ(from_float<Half>(-INFINITY).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(to_float(from_float<Half>(NAN))));
}

TEST(BFloat16, RoundsToNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const auto exact = kernels::bits_as<float>(bits << 16);
    const auto middle = kernels::bits_as<float>(bits << 16 | 0x8000);
    ASSERT_EQ(to_float(BFloat16{static_cast<std::uint16_t>(bits)}), exact);
    ASSERT_EQ(from_float<BFloat16>(exact).bits, bits);
    ASSERT_EQ(from_float<BFloat16>(middle).bits, bits % 2 == 0 ? bits : bits + 1);
  }
  EXPECT_TRUE(std::isnan(to_float(from_float<BFloat16>(NAN))));
  EXPECT_EQ(from_float<BFloat16>(-INFINITY).bits, 0xff80);
}

TEST(Divider, AgreesWithDivision) {
  const std::int64_t max = std::numeric_limits<std::int32_t>::max();
  std::mt19937_64 generator(1);
  for (const std::int64_t divisor :
       {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{7}, std::int64_t{1000},
        std::int64_t{65537}, max - 1, max, max + 1, max * 5}) {
    for (const std::int64_t limit : {max, max + 1, max * max}) {
      const kernels::Divider divider(divisor, limit);
      for (int i = 0; i < 1000; ++i) {
        const auto random = static_cast<std::int64_t>(generator() >> 1);
        const std::int64_t multiple = random / divisor * divisor;
        for (const std::int64_t number : {random, multiple, multiple - 1, limit, divisor - i}) {
          const std::int64_t inside = std::abs(number) % (limit + 1);
          ASSERT_EQ(divider.quotient(inside), inside / divisor) << inside << " / " << divisor;
        }
      }
    }
  }
}

TEST(AtomicAdd, AddsToEitherHalfOfAPair) {
  Tensor<Half> pair(2);
  pair[0] = from_float<Half>(1.5F);
  pair[1] = from_float<Half>(-2.0F);
  kernels::atomic_add(pair.data(), 0.25F);
  kernels::atomic_add(pair.data() + 1, 3.0F);
  EXPECT_EQ(to_float(pair[0]), 1.75F);
  EXPECT_EQ(to_float(pair[1]), 1.0F);
}

}  // namespace portability_kernel_test
}  // namespace kernels_bench
