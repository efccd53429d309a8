#include "base/progress_bar.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <string>

namespace perfmodel {
namespace progress_bar_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class ProgressBarTest : public ::testing::Test {
 protected:
  ProgressBar::Clock clock() {
    return [this] { return now; };
  }
  /// Output since the last call.
  std::string written() {
    std::string text = out.str();
    out.str("");
    return text;
  }
  std::ostringstream out;
  steady_clock::time_point now{};
};

TEST_F(ProgressBarTest, LabelShareAndRemainingTime) {
  ProgressBar bar("fit gemm", 200, &out, clock());
  EXPECT_EQ(written(), "\rfit gemm [........................]   0 %");
  now += seconds(30);
  bar.update(60);  // 30 % in 30 s: 70 s for the rest
  EXPECT_EQ(written(), "\rfit gemm [#######.................]  30 %  1 min 10 s left");
  now += seconds(30);
  bar.update(150);  // 75 % in 60 s; the shorter line covers the longer one
  EXPECT_EQ(written(), "\rfit gemm [##################......]  75 %  20 s left      ");
  now += seconds(1);
  bar.update(200);
  EXPECT_EQ(written(), "\rfit gemm [########################] 100 %           ");
}

TEST_F(ProgressBarTest, BytesHaveARateAndAreSilentForASecond) {
  ProgressBar bar("rank0.json", 1'000'000'000, &out, clock(), ProgressBar::Unit::kBytes);
  now += milliseconds(900);
  bar.update(200'000'000);
  EXPECT_EQ(written(), "");
  now += milliseconds(1100);
  bar.update(500'000'000);
  EXPECT_EQ(written(), "\rrank0.json [############............]  50 %  250 MB/s  2 s left");
}

TEST_F(ProgressBarTest, StepsOfUnknownNumberAreCounted) {
  ProgressBar bar("optimize", 0, &out, clock(), ProgressBar::Unit::kTries);
  now += milliseconds(900);
  bar.advance();
  EXPECT_EQ(written(), "");
  now += milliseconds(2100);
  bar.update(57);
  EXPECT_EQ(written(), "\roptimize 57 tried  3 s");
}

TEST_F(ProgressBarTest, BytesOfUnknownNumberHaveNoShare) {
  ProgressBar bar("-", 0, &out, clock(), ProgressBar::Unit::kBytes);
  now += seconds(2);
  bar.update(600'000'000);
  EXPECT_EQ(written(), "\r- 600 MB  300 MB/s");
  bar.finish();
  EXPECT_EQ(written(), "\r                  \r");
}

TEST_F(ProgressBarTest, HoursAndMore) {
  ProgressBar bar("x", 1000, &out, clock());
  now += seconds(10);
  written();
  bar.update(1);  // 9990 s
  EXPECT_NE(written().find("2 h 46 min left"), std::string::npos);
  now += std::chrono::hours(1000);
  bar.update(1);
  EXPECT_NE(written().find("more than 99 h left"), std::string::npos);
}

TEST_F(ProgressBarTest, RedrawsAtMostTenTimesASecond) {
  ProgressBar bar("x", 100, &out, clock());
  written();
  now += milliseconds(99);
  bar.advance();
  EXPECT_EQ(written(), "");
  now += milliseconds(1);
  bar.advance();
  EXPECT_EQ(written(), "\rx [........................]   2 %");  // below a second no estimate
}

TEST_F(ProgressBarTest, ErasesItself) {
  {
    ProgressBar bar("x", 4, &out, clock());
    written();
    bar.finish();
    EXPECT_EQ(written(), "\r" + std::string(34, ' ') + "\r");
    now += seconds(5);
    bar.update(2);
    bar.finish();
  }
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressBarTest, LongLabelsKeepToOneLineOf80) {
  ProgressBar bar("über\nlange Beschriftung einer Zeile", 1000, &out, clock());
  const std::string first = written();
  EXPECT_EQ(first, "\rüber lange Beschriftung… [........................]   0 %");
  now += std::chrono::hours(1000);
  bar.update(999);
  bar.update(2000);  // more than there are
  std::size_t width = 0;
  for (char c : written()) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  EXPECT_LT(width, 81u);
}

TEST_F(ProgressBarTest, NothingToDoAndNowhereToWrite) {
  { ProgressBar bar("x", 0, &out, clock()); }
  EXPECT_NE(written().find("100 %"), std::string::npos);
  ProgressBar silent("x", 10, nullptr, clock());
  silent.update(5);
  silent.finish();
  EXPECT_EQ(written(), "");
}

TEST(ProgressBar, WritesNothingToAFile) {
  ::testing::internal::CaptureStderr();  // a file
  {
    ProgressBar bar("x", 3);
    bar.advance();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace progress_bar_test
}  // namespace perfmodel
