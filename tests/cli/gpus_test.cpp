// `perfpredict gpus`: names, what was measured on each.
#include <gtest/gtest.h>

#include <string>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace gpus_test {

TEST(GpusCommand, ListsAllAndShowsOneUnderAnyOfItsNames) {
  const Json all = json_of({"gpus"});
  EXPECT_GE(all["gpus"].size(), 30U);
  const Json one = json_of({"gpus", "Tesla V100-SXM2-16GB"});
  ASSERT_EQ(one["gpus"].size(), 1U);
  EXPECT_EQ(one["gpus"][0]["name"], "v100-sxm2-16gb");
  EXPECT_FALSE(one["gpus"][0]["sources"].empty());
  EXPECT_NE(run({"gpus", "t4"}).out.find("T4"), std::string::npos);
}

TEST(GpusCommand, SaysWhatWasMeasuredOnEach) {
  const auto kernels = [](const char* gpu) { return json_of({"gpus", gpu})["gpus"][0]["kernels"]; };
  EXPECT_EQ(kernels("h100-sxm-80gb")["gemm-bfloat16"], "board");
  EXPECT_EQ(kernels("h200-sxm-141gb")["gemm-bfloat16"], "board");
  EXPECT_EQ(kernels("h100-pcie-80gb")["gemm-bfloat16"], "architecture");
  EXPECT_EQ(kernels("l40s")["gemm-bfloat16"], "none");
  EXPECT_EQ(kernels("v100-sxm2-32gb")["embedding_forward"], "board");  // the heuristic's
  const std::string table = run({"gpus", "--full"}).out;
  EXPECT_NE(table.find("gemm-bfloat16"), std::string::npos);
  for (const char* letter : {" M ", " C ", " A ", " - "}) {
    EXPECT_NE(table.find(letter), std::string::npos) << letter;
  }
}

TEST(GpusCommand, AClockThatNobodyStatesIsNotZero) {
  EXPECT_TRUE(json_of({"gpus", "h200-sxm-141gb"})["gpus"][0]["base_clock_mhz"].is_null());
  const std::string text = run({"gpus", "h200-sxm-141gb"}).out;
  EXPECT_NE(text.find("- base, 1980 MHz boost"), std::string::npos) << text;
}

}  // namespace gpus_test
}  // namespace perfmodel::test_support
