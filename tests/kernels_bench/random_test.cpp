#include "kernels_bench/gpu/random.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace kernels_bench::gpu {
namespace random_test {

TEST(Random, ShuffleIsAPermutation) {
  for (const std::int64_t size : {1, 2, 3, 5, 16, 17, 1000}) {
    std::vector<int> seen(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) ++seen[static_cast<std::size_t>(shuffled(i, size, 7))];
    EXPECT_THAT(seen, testing::Each(1)) << size;
  }
}

TEST(Random, UniformNumbersStayBelowTheLimitAndFillIt) {
  std::vector<int> seen(10);
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    ++seen[static_cast<std::size_t>(random_below(5, i, 10))];
  }
  EXPECT_THAT(seen, testing::Each(testing::AllOf(testing::Gt(850), testing::Lt(1150))));
}

/// Both sides of s = 1, where the integral is a logarithm, and next to it.
class ZipfTest : public testing::TestWithParam<double> {};

TEST_P(ZipfTest, RanksFollowTheLaw) {
  constexpr int kRows = 50, kDraws = 400'000;
  const ZipfSampler zipf = make_zipf_sampler(GetParam(), kRows);
  std::vector<double> share(kRows + 1);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::int64_t rank = zipf.rank(11, i);
    ASSERT_GE(rank, 1);
    ASSERT_LE(rank, kRows);
    share[static_cast<std::size_t>(rank)] += 1.0 / kDraws;
  }
  double sum = 0;
  for (int k = 1; k <= kRows; ++k) sum += std::pow(k, -GetParam());
  for (int k = 1; k <= kRows; ++k) {
    const double expected = std::pow(k, -GetParam()) / sum;
    // Five standard deviations of a share.
    EXPECT_NEAR(share[static_cast<std::size_t>(k)], expected, 5 * std::sqrt(expected / kDraws))
        << "rank " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Exponents, ZipfTest, testing::Values(0.6, 0.9, 1.0, 1.0 + 1e-8, 1.1, 1.3));

TEST(Zipf, LargeTablesStayInRange) {
  const ZipfSampler zipf = make_zipf_sampler(0.9, 20'000'000);
  double largest = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const auto rank = static_cast<double>(zipf.rank(3, i));
    ASSERT_GE(rank, 1);
    ASSERT_LE(rank, 2e7);
    largest = std::max(largest, rank);
  }
  EXPECT_GT(largest, 1.9e7);
}

TEST(Zipf, OneRow) { EXPECT_EQ(make_zipf_sampler(1.1, 1).rank(1, 1), 1); }

}  // namespace random_test
}  // namespace kernels_bench::gpu
