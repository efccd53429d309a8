// An H100 with PyTorch 2.11 (data/measurements). Execution graphs are those of the H200 where both
// boards ran a program and only one was kept.
#include "measured_board.hpp"

namespace perfmodel {
namespace h100_test {

using namespace measured_board;

const std::string kGpu = "h100-sxm-80gb";

TEST(MeasuredOnH100, OpsOfAnotherDraw) {
  const std::map<std::string, double> limits = {
      {"gemm float32", 11},         {"gemm tf32", 12.5},           {"gemm bfloat16", 22.5},
      {"gemm float16", 14.5},       {"convolution float32", 37},   {"convolution tf32", 35},
      {"convolution bfloat16", 35}, {"elementwise float32", 13.5}, {"elementwise bfloat16", 15.5},
      {"reduction float32", 28},    {"reduction bfloat16", 26},    {"softmax float32", 23},
      {"softmax bfloat16", 26},     {"norm float32", 26},          {"norm bfloat16", 19},
      {"dropout float32", 10},      {"dropout bfloat16", 7}};
  expect_ops_of_another_draw(kGpu, limits);
}

TEST(MeasuredOnH100, WholeStepsByDefault) {
  const std::vector<Step> steps = traced_steps(kGpu, "h200-sxm-141gb");
  ASSERT_EQ(steps.size(), 56u);
  const StepErrors errors = predict_steps(kGpu, steps);
  EXPECT_LE(errors.step, 0.265);
  EXPECT_LE(errors.active, 0.08);
  EXPECT_LE(errors.median_active, 0.065);
  EXPECT_GE(errors.inside, 0.75);
}

}  // namespace h100_test
}  // namespace perfmodel
