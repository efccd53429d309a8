// Distances between names, and what long texts cost.
#include "core/edit_distance.hpp"

#include <gtest/gtest.h>

#include <string>

namespace perfmodel {
namespace edit_distance_test {

TEST(EditDistance, CountsLettersAddedLostAndChanged) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("h100", ""), 4u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("sitting", "kitten"), 3u);
}

TEST(EditDistance, ComparesTheBeginningOfLongTexts) {
  const std::string same(256, 'a');
  EXPECT_EQ(edit_distance(same + "b", same + "c"), 1u);
  EXPECT_EQ(edit_distance(same, same + "bc"), 2u);
  // Letter by letter this would be 10^13 steps.
  const std::string huge(8'000'000, 'a');
  EXPECT_EQ(edit_distance(huge, std::string(8'000'000, 'b')), huge.size());
}

TEST(NearestThree, EquallyNearOnesAreInTheOrderOfTheirNames) {
  EXPECT_EQ(nearest_three({{2, "v100"}, {1, "b200"}, {1, "a100"}, {3, "h100"}}),
            "a100, b200, v100");
  EXPECT_EQ(nearest_three({{5, "a100"}}), "a100");
  EXPECT_EQ(nearest_three({}), "");
}

}  // namespace edit_distance_test
}  // namespace perfmodel
