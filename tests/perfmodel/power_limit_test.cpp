// Steps at their board's power limit, energy, and the range of a step.
#include <gtest/gtest.h>

#include <filesystem>

#include "literal_case.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/power.hpp"

namespace perfmodel {
namespace power_limit_test {

const std::filesystem::path kData = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";

Gpu board(double tdp_w) {
  Gpu gpu = find_gpu("h100-sxm-80gb", kData / "gpus").value();
  gpu.tdp_w = tdp_w;
  return gpu;
}

// Long products of aligned rows: the device is busy throughout, and its matrix units are.
const ExecutionGraph& large_steps() {
  static const ExecutionGraph graph = [] {
    GptConfig config = *gpt_preset("gpt2");
    config.layers = 2;
    config.batch = 64;
    config.vocabulary = 50304;
    return rewrite_precision(build_gpt(config).value(),
                             {.precision = PrecisionOptions::Precision::kBf16})
        .value();
  }();
  return graph;
}

Prediction step(double tdp_w, PredictOptions options = {}) {
  static const OverheadTable table = read_overheads(kData / "overheads" / "reference.json").value();
  return predict(large_steps(), board(tdp_w), table, options).value();
}

double kernels_j(const Prediction& prediction) {
  double sum = 0;
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) sum += kernel.energy.sum_j();
  }
  return sum;
}

TEST(PowerLimit, ALowerLimitIsNeverFaster) {
  double before = 0;
  for (const double tdp : {2000., 700., 500., 350., 200.}) {
    const double us = step(tdp).e2e_us;
    EXPECT_GE(us, before * (1 - 1e-9)) << tdp;
    before = us;
  }
  EXPECT_GT(before, 1.5 * step(2000).e2e_us);
}

TEST(PowerLimit, SustainedStepsAreNoShorterThanBursts) {
  for (const double tdp : {2000., 700., 250.}) {
    const Prediction sustained = step(tdp), burst = step(tdp, {.sustained = false});
    EXPECT_GE(sustained.e2e_us, burst.e2e_us * (1 - 1e-9)) << tdp;
    EXPECT_EQ(burst.limited_us, 0);
    EXPECT_LE(sustained.e2e_low_us, burst.e2e_us) << "bursts are the fast end";
  }
  EXPECT_EQ(step(2000).limited_us, 0);
  EXPECT_GT(step(250).limited_us, 0);
}

TEST(PowerLimit, HoldsTheMeanPower) {
  for (const double tdp : {280., 250., 200.}) {
    const Prediction made = step(tdp);
    EXPECT_NEAR(*made.power_w() / tdp, 1, 0.01) << tdp;
  }
  EXPECT_LT(*step(2000).power_w(), 1500);
}

TEST(PowerLimit, ABoardWithoutOneHasBurstsAndNoEnergy) {
  const Prediction made = step(0);
  EXPECT_FALSE(made.energy_j);
  EXPECT_FALSE(made.power_w());
  EXPECT_EQ(made.limited_us, 0);
  EXPECT_EQ(made.e2e_us, step(0, {.sustained = false}).e2e_us);
}

TEST(PowerLimit, EnergyIsIdlePowerAndTheKernelsTogether) {
  for (const double tdp : {700., 250.}) {
    const Prediction made = step(tdp);
    EXPECT_NEAR(*made.energy_j / (idle_power_w(board(tdp)) * made.e2e_us * 1e-6 + kernels_j(made)),
                1, 1e-9);
  }
  // The limit costs time, not work.
  EXPECT_NEAR(kernels_j(step(250)) / kernels_j(step(250, {.sustained = false})), 1, 1e-9);
}

TEST(PowerLimit, TracedTimesStay) {
  const test_support::Case steps({"a", "b"}, 100);
  Gpu gpu = test_support::round_gpu();
  gpu.tdp_w = 20;
  const auto made = predict(steps.graph, gpu, steps.table, {.kernel_times = &steps.times}).value();
  for (const PredictedOp& op : made.ops) {
    for (const PredictedKernel& kernel : op.kernels) EXPECT_EQ(kernel.price.time.count(), 100);
  }
}

// ---- range of the step -------------------------------------------------------------------------

TEST(StepRange, HoldsTheStepAndWhatOneSideAloneWouldMakeOfIt) {
  const Prediction made = step(700);
  EXPECT_LT(made.e2e_low_us, made.e2e_us);
  EXPECT_GT(made.e2e_high_us, made.e2e_us);
  // The device works all the time, so the ends come from the sum of its kernels: closer than the
  // sum of the single ends.
  double low = 0, high = 0, time = 0;
  for (const PredictedOp& op : made.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      time += kernel.price.time.count();
      low += kernel.price.low.count();
      high += kernel.price.high.count();
    }
  }
  EXPECT_GT(made.e2e_low_us / made.e2e_us, low / time);
  EXPECT_LT(made.e2e_high_us / made.e2e_us, high / time);
}

TEST(StepRange, OfAHostBoundStepIsThatOfHosts) {
  // 10 us of the host per op, kernels of 1 us as traced, which have no range. The table knows the
  // program's own launches: the host may differ from the table's by a tenth.
  test_support::Case steps({"a", "b", "a", "b", "drain"}, 1);
  const Prediction made = steps.predict();
  ASSERT_TRUE(made.coverage.own_launches);
  const auto on_host = [&](double scale) { return steps.predict({.host_scale = scale}).e2e_us; };
  EXPECT_NEAR(made.e2e_low_us, on_host(kSameHosts.front()), 1e-6);
  EXPECT_NEAR(made.e2e_high_us, on_host(kSameHosts.back()), 1e-6);
}

TEST(StepRange, CanBeLeftOut) {
  const Prediction made = step(700, {.step_range = false});
  EXPECT_EQ(made.e2e_low_us, made.e2e_us);
  EXPECT_EQ(made.e2e_high_us, made.e2e_us);
}

}  // namespace power_limit_test
}  // namespace perfmodel
