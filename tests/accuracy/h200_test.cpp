// An H200 with PyTorch 2.11 (data/measurements).
#include "measured_board.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

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
  ASSERT_EQ(steps.size(), 35u);
  const StepErrors errors = predict_steps(kGpu, steps);
  // Steps of recurrent layers follow from an H100's (`recurrent_hopper_test.cpp`).
  EXPECT_LE(std::abs(errors.active_of.at("lstm-512x2-b32")), 0.15);
  EXPECT_LE(errors.step, 0.12);
  EXPECT_LE(errors.active, 0.08);
  EXPECT_LE(errors.median_active, 0.076);
  EXPECT_GE(errors.inside, 0.85);
}

// ResNet-50 as the workload `resnet50.bf16` builds it.
ExecutionGraph resnet50_in_bf16(std::int64_t batch) {
  ResnetConfig config = resnet_preset("resnet50").value();
  config.batch = batch;
  config.training.optimizer = TrainingOptions::Optimizer::kSgd;
  config.training.resident_input = true;
  return rewrite_precision(build_resnet(config).value(),
                           {.precision = PrecisionOptions::Precision::kBf16})
      .value();
}

double measured_active_us(const std::string& key) {
  const auto index = nlohmann::json::parse(std::ifstream(folder_of(kGpu) / "index.json"));
  for (const auto& point : index["points"]) {
    if (point["key"] != key) continue;
    const auto& steps = point["trace"]["gpu_active_us"];
    double sum = 0;
    for (const auto& us : steps) sum += us.get<double>();
    return sum / static_cast<double>(steps.size());
  }
  return 0;
}

// Batch 64 was seen while batch norms and poolings were priced; 256 judges alone.
TEST(MeasuredOnH200, ResNet50ChannelsLastAndFirst) {
  const Predictor predictor =
      Predictor::load({.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data"}).value();
  for (const std::int64_t batch : {64, 256}) {
    const ExecutionGraph first = resnet50_in_bf16(batch);
    const ExecutionGraph last = rewrite_channels_last(first).value();
    const double ours_first = predictor.predict(first, kGpu).value().gpu_active_us;
    const double ours_last = predictor.predict(last, kGpu).value().gpu_active_us;
    const std::string point = "-b" + std::to_string(batch);
    const double measured_first = measured_active_us("resnet50.bf16-first" + point);
    const double measured_last = measured_active_us("resnet50.bf16-last" + point);
    std::printf("batch %d: NCHW %.2f ms, measured %.2f; NHWC %.2f, measured %.2f\n",
                static_cast<int>(batch), ours_first / 1e3, measured_first / 1e3, ours_last / 1e3,
                measured_last / 1e3);
    EXPECT_NEAR(ours_first / measured_first, 1, 0.1) << batch;
    EXPECT_NEAR(ours_last / measured_last, 1, 0.1) << batch;
    EXPECT_NEAR(ours_last / ours_first, measured_last / measured_first,
                0.1 * measured_last / measured_first)
        << batch;
  }
}

}  // namespace h200_test
}  // namespace perfmodel
