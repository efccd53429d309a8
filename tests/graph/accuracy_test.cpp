#include "base/accuracy.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace perfmodel {
namespace accuracy_test {

using Values = std::vector<double>;

TEST(ErrorSummary, LiteralErrors) {
  // e = +0.1, -0.1, 0, +0.5
  const auto summary = summarize_errors(Values{10, 20, 40, 100}, Values{11, 18, 40, 150});
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->rows, 4u);
  EXPECT_NEAR(summary->mape, 0.175, 1e-12);
  EXPECT_NEAR(summary->median_ape, 0.1, 1e-12);
  EXPECT_NEAR(summary->bias, 0.125, 1e-12);
  EXPECT_NEAR(summary->p90, 0.38, 1e-12);  // 0, 0.1, 0.1, 0.5: 0.1 + 0.7 * 0.4
  // Fourth root of 0.1004 * 0.1004 * 0.0004 * 0.5004.
  EXPECT_NEAR(summary->geomean_ape, 0.0376887, 1e-6);
}

TEST(ErrorSummary, ExactPredictionsHaveTheOffsetAsGeometricMean) {
  const auto summary = summarize_errors(Values{1, 2}, Values{1, 2});
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->mape, 0);
  EXPECT_NEAR(summary->geomean_ape, kGeomeanOffset, 1e-15);
}

TEST(ErrorSummary, APredictionOfZeroIsAllOff) {
  const auto summary = summarize_errors(Values{5}, Values{0});
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->mape, 1);
  EXPECT_EQ(summary->bias, -1);
}

TEST(ErrorSummary, ByKey) {
  const std::vector<std::int64_t> keys{7, -1, 7};
  const auto summaries = summarize_errors_by(keys, Values{10, 10, 10}, Values{12, 15, 10});
  ASSERT_TRUE(summaries.has_value());
  ASSERT_EQ(summaries->size(), 2u);
  EXPECT_EQ(summaries->at(7).rows, 2u);
  EXPECT_NEAR(summaries->at(7).mape, 0.1, 1e-12);
  EXPECT_EQ(summaries->at(-1).rows, 1u);
  EXPECT_NEAR(summaries->at(-1).mape, 0.5, 1e-12);
  EXPECT_TRUE(summarize_errors_by({}, {}, {})->empty());
}

TEST(ErrorSummary, Refuses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(summarize_errors({}, {}).has_value());
  EXPECT_FALSE(summarize_errors(Values{1, 2}, Values{1}).has_value());
  EXPECT_FALSE(summarize_errors(Values{0}, Values{1}).has_value());
  EXPECT_FALSE(summarize_errors(Values{-1}, Values{1}).has_value());
  EXPECT_FALSE(summarize_errors(Values{nan}, Values{1}).has_value());
  EXPECT_FALSE(summarize_errors(Values{1}, Values{nan}).has_value());
  EXPECT_FALSE(summarize_errors(Values{1e-300}, Values{1e300}).has_value());
  EXPECT_FALSE(summarize_errors_by(std::vector<std::int64_t>{1}, Values{1, 2}, Values{1, 2}));
  const auto error = summarize_errors(Values{1, 0}, Values{1, 1}).error();
  EXPECT_EQ(error.code, ErrorCode::kImpossible);
  EXPECT_EQ(error.message, "row 1: expected a measured time above 0, found 0");
}

double mean_error(double c, const Values& x, const Values& m) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::abs(c * x[i] - m[i]) / m[i];
  return sum / static_cast<double>(x.size());
}

TEST(BestConstantRatio, WeighsSmallRatiosMore) {
  // Ratios 1, 2, 4 with weights 1, 1/2, 1/4: the first makes more than half of 1.75. The errors are
  // (0 + 1/2 + 3/4) / 3; with the plain median, 2, (1 + 0 + 1/2) / 3.
  const auto c = best_constant_ratio(Values{10, 10, 10}, Values{20, 10, 40});
  ASSERT_TRUE(c.has_value());
  EXPECT_DOUBLE_EQ(*c, 1);
}

TEST(BestConstantRatio, ConstantTimesAreExact) {
  EXPECT_DOUBLE_EQ(*best_constant_ratio(Values{1, 2, 50}, Values{3, 6, 150}), 3);
  EXPECT_DOUBLE_EQ(*best_constant_ratio(Values{8}, Values{2}), 0.25);
}

TEST(BestConstantRatio, NoConstantIsBetter) {
  const Values x{3, 5, 8, 13, 21, 34, 55}, m{4, 4, 11, 10, 44, 20, 70};
  const auto c = best_constant_ratio(x, m);
  ASSERT_TRUE(c.has_value());
  for (double other = 0.01; other < 4; other += 0.01) {
    EXPECT_LE(mean_error(*c, x, m), mean_error(other, x, m) + 1e-12) << other;
  }
}

TEST(BestConstantRatio, Refuses) {
  EXPECT_FALSE(best_constant_ratio({}, {}).has_value());
  EXPECT_FALSE(best_constant_ratio(Values{1}, Values{1, 2}).has_value());
  EXPECT_FALSE(best_constant_ratio(Values{0}, Values{1}).has_value());
  EXPECT_FALSE(best_constant_ratio(Values{1}, Values{-1}).has_value());
}

}  // namespace accuracy_test
}  // namespace perfmodel
