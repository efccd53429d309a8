#include "base/statistics.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace perfmodel {
namespace statistics_test {

using Values = std::vector<double>;

TEST(Quantile, InterpolatesBetweenNeighbours) {
  const Values values{0, 10, 20, 40};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 0);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 15);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 34);  // place 2.7: 20 + 0.7 * 20
  EXPECT_DOUBLE_EQ(quantile(values, 1), 40);
  EXPECT_DOUBLE_EQ(quantile(Values{7}, 0.3), 7);
}

TEST(Quantile, IsAMeasuredValueIfAskedForTheLower) {
  const Values values{0, 10, 20, 40};
  EXPECT_DOUBLE_EQ(quantile(values, 0.5, QuantileRule::kLower), 10);
  EXPECT_DOUBLE_EQ(quantile(values, 1, QuantileRule::kLower), 40);
}

TEST(Quantile, OfEqualValuesIsExactlyTheirValue) {
  const Values values(4, 0.1);
  for (const double share : {0.1, 0.25, 0.3, 0.9}) EXPECT_EQ(quantile(values, share), 0.1);
}

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_DOUBLE_EQ(median_of({}), 0);
  EXPECT_DOUBLE_EQ(median_of({7}), 7);
  EXPECT_DOUBLE_EQ(median_of({9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(median_of({9, 1, 5, 2}), 3.5);
}

TEST(Mean, IsNothingOfNothing) {
  EXPECT_DOUBLE_EQ(mean_of({}), 0);
  EXPECT_DOUBLE_EQ(mean_of(Values{1, 2, 6}), 3);
}

}  // namespace statistics_test
}  // namespace perfmodel
