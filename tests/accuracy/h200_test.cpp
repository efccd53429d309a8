// An H200 with PyTorch 2.11 (data/measurements).
#include "measured_board.hpp"

namespace perfmodel {
namespace h200_test {

using namespace measured_board;

const std::string kGpu = "h200-sxm-141gb";

TEST(MeasuredOnH200, OpsOfAnotherDraw) {
  const std::map<std::string, double> limits = {{"convolution bfloat16 channels last", 17},
                                                {"norm bfloat16 channels last", 37},
                                                {"norm float32 channels last", 32},
                                                {"gemm float32", 11},
                                                {"gemm tf32", 10.5},
                                                {"gemm bfloat16", 12},
                                                {"gemm float16", 10},
                                                {"convolution float32", 43},
                                                {"convolution tf32", 28},
                                                {"convolution bfloat16", 20},
                                                {"elementwise float32", 8},
                                                {"elementwise bfloat16", 9.5},
                                                {"reduction float32", 13},
                                                {"reduction bfloat16", 20},
                                                {"softmax float32", 14.5},
                                                {"softmax bfloat16", 12.5},
                                                {"norm float32", 11.5},
                                                {"norm bfloat16", 12},
                                                {"dropout float32", 6},
                                                {"dropout bfloat16", 6}};
  expect_ops_of_another_draw(kGpu, limits);
}

TEST(MeasuredOnH200, WholeStepsByDefault) {
  const std::vector<Step> steps = traced_steps(kGpu);
  ASSERT_EQ(steps.size(), 33u);
  const StepErrors errors = predict_steps(kGpu, steps);
  // Steps of recurrent layers follow from an H100's (`recurrent_hopper_test.cpp`).
  EXPECT_LE(std::abs(errors.active_of.at("lstm-512x2-b32")), 0.15);
  EXPECT_LE(errors.step, 0.12);
  EXPECT_LE(errors.active, 0.08);
  EXPECT_LE(errors.median_active, 0.076);
  EXPECT_GE(errors.inside, 0.85);
}

}  // namespace h200_test
}  // namespace perfmodel
