#include "base/number_text.hpp"

#include <gtest/gtest.h>

namespace perfmodel {
namespace number_text_test {

TEST(NumberText, GroupsDigitsByThree) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(12345678), "12,345,678");
}

TEST(NumberText, CountsHaveAPlural) {
  EXPECT_EQ(counted(0, "kernel"), "0 kernels");
  EXPECT_EQ(counted(1, "kernel"), "1 kernel");
  EXPECT_EQ(counted(1000, "kernel"), "1,000 kernels");
}

TEST(NumberText, SharesArePercents) {
  EXPECT_EQ(percent(0.123), "12.3 %");
  EXPECT_EQ(percent(0.123, 0), "12 %");
  EXPECT_EQ(signed_percent(0.123), "+12.3 %");
  EXPECT_EQ(signed_percent(-1, 0), "-100 %");
  EXPECT_EQ(percent_of(1, 8), "12.5 %");
  EXPECT_EQ(percent_of(3, 4, 0), "75 %");
  EXPECT_EQ(percent_of(1, 0), "-");
}

TEST(NumberText, MillisecondsHaveThreeDecimals) { EXPECT_EQ(milliseconds(1234.5), "1.234"); }

}  // namespace number_text_test
}  // namespace perfmodel
