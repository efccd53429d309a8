#include "training/sampling.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

namespace perfmodel {
namespace sampling_test {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

bool different(const std::vector<std::size_t>& rows) {
  return std::set<std::size_t>(rows.begin(), rows.end()).size() == rows.size();
}

TEST(RandomSample, DifferentRowsNestedOverK) {
  const auto few = random_sample(1000, 10, 1), many = random_sample(1000, 100, 1);
  ASSERT_EQ(few.size(), 10u);
  ASSERT_EQ(many.size(), 100u);
  EXPECT_TRUE(different(many));
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  for (std::size_t row : many) EXPECT_LT(row, 1000u);
  EXPECT_NE(few, random_sample(1000, 10, 2));
}

TEST(RandomSample, IsEqualOnEveryMachine) {
  EXPECT_THAT(random_sample(100, 5, 0), ElementsAre(94, 6, 19, 89, 80));
}

TEST(RandomSample, AllRowsAndNone) {
  EXPECT_THAT(random_sample(3, 3, 5), UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(random_sample(3, 9, 5), UnorderedElementsAre(0, 1, 2));
  EXPECT_TRUE(random_sample(3, 0, 5).empty());
  EXPECT_TRUE(random_sample(0, 3, 5).empty());
}

TEST(RandomSample, EachRowIsEquallyLikely) {
  std::vector<int> drawn(10, 0);
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    for (std::size_t row : random_sample(10, 3, seed)) ++drawn[row];
  }
  for (int count : drawn) EXPECT_NEAR(count, 600, 100);  // 5 deviations of 20.5
}

TEST(KmeansSample, TakesTheMiddleOfEachCluster) {
  // Three clusters of three; the middle row of each is its centre.
  FeatureRows rows(9, 2);
  rows << 0, 0, 1, 0, 2, 0, 100, 5, 101, 5, 102, 5, 50, 90, 51, 90, 52, 90;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto chosen = kmeans_sample(rows, 3, seed);
    ASSERT_TRUE(chosen.has_value());
    ASSERT_EQ(chosen->size(), 3u);
    // Lloyd's iterations may end in a local minimum; with clusters this far apart they do not.
    EXPECT_THAT(*chosen, ElementsAre(1, 4, 7)) << seed;
  }
}

TEST(KmeansSample, UnitsDoNotMatter) {
  const FeatureRows rows = FeatureRows::Random(200, 3);
  FeatureRows scaled = rows;
  scaled.col(0) *= 1024;  // a power of two scales without rounding
  scaled.col(2) /= 4096;
  EXPECT_EQ(*kmeans_sample(rows, 12, 3), *kmeans_sample(scaled, 12, 3));
}

TEST(KmeansSample, DifferentRowsEqualForASeed) {
  const FeatureRows rows = FeatureRows::Random(600, 4);
  const auto chosen = kmeans_sample(rows, 20, 7);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_EQ(chosen->size(), 20u);
  EXPECT_TRUE(different(*chosen));
  EXPECT_TRUE(std::is_sorted(chosen->begin(), chosen->end()));
  EXPECT_EQ(*chosen, *kmeans_sample(rows, 20, 7));
  EXPECT_NE(*chosen, *kmeans_sample(rows, 20, 8));
}

TEST(KmeansSample, RowsOutsideTheFittedSubsetTakePart) {
  FeatureRows rows = FeatureRows::Random(8000, 1);
  const auto chosen = kmeans_sample(rows, 40, 1);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_EQ(chosen->size(), 40u);
  EXPECT_TRUE(different(*chosen));
  std::vector<std::size_t> fitted = random_sample(8000, 5000, 1);
  const std::set<std::size_t> subset(fitted.begin(), fitted.end());
  EXPECT_TRUE(std::any_of(chosen->begin(), chosen->end(),
                          [&](std::size_t row) { return subset.count(row) == 0; }));
}

TEST(KmeansSample, FewerDifferentRowsThanClusters) {
  FeatureRows rows = FeatureRows::Zero(10, 2);
  rows.row(4) << 1, 1;
  const auto chosen = kmeans_sample(rows, 5, 0);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_EQ(chosen->size(), 5u);
  EXPECT_TRUE(different(*chosen));
  EXPECT_THAT(*chosen, ::testing::Contains(4u));
  EXPECT_EQ(kmeans_sample(FeatureRows::Constant(6, 3, 0.1), 4, 0)->size(), 4u);
  EXPECT_EQ(kmeans_sample(FeatureRows(6, 0), 4, 0)->size(), 4u);
}

TEST(KmeansSample, AllRowsAndNone) {
  const FeatureRows rows = FeatureRows::Random(4, 2);
  EXPECT_THAT(*kmeans_sample(rows, 4, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(*kmeans_sample(rows, 9, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(kmeans_sample(rows, 0, 0)->empty());
  EXPECT_TRUE(kmeans_sample(FeatureRows(0, 2), 3, 0)->empty());
  EXPECT_EQ(kmeans_sample(rows, 1, 0)->size(), 1u);
}

TEST(KmeansSample, HugeAndInvalidFeatures) {
  FeatureRows rows(3, 1);
  rows << 1e300, -1e300, 9e299;
  EXPECT_EQ(kmeans_sample(rows, 2, 0)->size(), 2u);
  rows(1, 0) = std::numeric_limits<double>::quiet_NaN();
  const auto refused = kmeans_sample(rows, 2, 0);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "row 1: expected finite features, found one that is not");
}

}  // namespace sampling_test
}  // namespace perfmodel
