// Machines by measured steps: known effects are recovered from steps, and bad input is refused.
#include "layout/step_calibration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace layout_step_calibration_test {

using ::testing::HasSubstr;

const LayoutPricer& calibration_pricer() {
  static const Predictor predictor =
      Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value();
  static const LayoutPricer made = LayoutPricer::make(predictor, {.gpu = "h100-sxm-80gb"}).value();
  return made;
}

LayoutJob small_job(std::int64_t hidden = 2048) {
  LayoutJob job;
  job.model = {.name = "small",
               .layers = 8,
               .hidden = hidden,
               .heads = 16,
               .feed_forward = 4 * hidden,
               .vocabulary = 32000};
  job.sequence = 2048;
  job.global_batch = 64;
  job.software = "megatron";
  return job;
}

ParallelLayout layout_with(std::int64_t tp, std::int64_t pp, std::int64_t micro_batch) {
  ParallelLayout layout{.dp = 8 / tp / pp, .tp = tp, .pp = pp, .micro_batch = micro_batch};
  layout.sequence_parallel = tp > 1;
  return layout;
}

/// Steps of a machine whose kernels take `kernels` and whose collectives of tensor parallelism take
/// `network` times what is predicted.
std::vector<MeasuredStep> steps_of(double kernels, double network) {
  std::vector<MeasuredStep> steps;
  for (const auto& layout : {layout_with(1, 1, 1), layout_with(2, 1, 2), layout_with(4, 1, 2),
                             layout_with(2, 2, 1), layout_with(8, 1, 4), layout_with(1, 1, 4)}) {
    const auto made = calibration_pricer().predict(small_job(), layout).value();
    const auto term = [&](LayoutTerm which) {
      return made.terms_ms[static_cast<std::size_t>(which)];
    };
    double ms = made.step_ms;
    ms += (kernels - 1) * (term(LayoutTerm::kCompute) + term(LayoutTerm::kOptimizer));
    ms += (network - 1) * term(LayoutTerm::kTensorParallel);
    const double passes = term(LayoutTerm::kCompute) + term(LayoutTerm::kTensorParallel);
    ms += term(LayoutTerm::kBubble) *
          ((kernels - 1) * term(LayoutTerm::kCompute) +
           (network - 1) * term(LayoutTerm::kTensorParallel)) /
          passes;
    steps.push_back({.job = small_job(), .layout = layout, .step_ms = ms});
  }
  return steps;
}

TEST(StepCalibration, StepsAsPredictedChangeNothing) {
  const auto same = calibration_pricer().measured(steps_of(1, 1)).value();
  const auto before = calibration_pricer().predict(small_job(), layout_with(2, 1, 1)).value();
  const auto after = same.predict(small_job(), layout_with(2, 1, 1)).value();
  EXPECT_NEAR(after.step_ms, before.step_ms, 1e-9 * before.step_ms);
  EXPECT_NEAR(same.fit()->mape_after, 0, 1e-9);
}

TEST(StepCalibration, ASlowerMachineIsFound) {
  std::vector<MeasuredStep> steps = steps_of(1, 1);
  for (MeasuredStep& step : steps) step.step_ms *= 1.15;
  const auto slow = calibration_pricer().measured(steps).value();
  const auto factor = [&](const LayoutJob& job, const ParallelLayout& layout) {
    const LayoutPrediction after = slow.predict(job, layout).value();
    double sum = 0;
    for (const double term : after.terms_ms) sum += term;
    EXPECT_NEAR(sum, after.step_ms, 1e-9 * sum);
    return after.step_ms / calibration_pricer().predict(job, layout).value().step_ms;
  };
  // Four times as many layers are the same layers.
  LayoutJob deeper = small_job();
  deeper.model.layers = 32;
  EXPECT_NEAR(factor(deeper, layout_with(2, 1, 2)), 1.15, 0.02);
  // No layers with this tp and micro-batch were measured: most of the factor applies.
  EXPECT_GT(factor(small_job(), layout_with(2, 1, 4)), 1.08);
  EXPECT_LT(factor(small_job(), layout_with(2, 1, 4)), 1.16);
}

TEST(StepCalibration, ASlowNetworkIsToldFromSlowKernels) {
  const auto slow = calibration_pricer().measured(steps_of(1, 2)).value();
  const auto before = calibration_pricer().predict(small_job(), layout_with(4, 1, 4)).value();
  const auto after = slow.predict(small_job(), layout_with(4, 1, 4)).value();
  const auto factor = [&](LayoutTerm which) {
    const auto at = static_cast<std::size_t>(which);
    return after.terms_ms[at] / before.terms_ms[at];
  };
  EXPECT_GT(factor(LayoutTerm::kTensorParallel), 1.5);
  EXPECT_NEAR(factor(LayoutTerm::kCompute), 1, 0.08);
}

TEST(StepCalibration, ABadRunCountsLittle) {
  std::vector<MeasuredStep> steps = steps_of(1, 1);
  steps[1].step_ms *= 5;
  const auto made = calibration_pricer().measured(steps).value();
  const auto before = calibration_pricer().predict(small_job(), layout_with(1, 1, 1)).value();
  const auto after = made.predict(small_job(), layout_with(1, 1, 1)).value();
  EXPECT_NEAR(after.step_ms / before.step_ms, 1, 0.03);
}

TEST(StepCalibration, MeasuringNarrowsTheRange) {
  const auto job = small_job();
  const auto width = [](const LayoutPrediction& made) {
    return std::log(made.high_ms / made.low_ms);
  };
  const std::vector<MeasuredStep> all = steps_of(1.1, 1.1);
  const auto one = calibration_pricer().measured({all.data(), 1}).value();
  const auto six = calibration_pricer().measured(all).value();
  const ParallelLayout layout = layout_with(8, 1, 4);
  EXPECT_LT(width(six.predict(job, layout).value()), width(one.predict(job, layout).value()));
  // The measurements that are said to be worthwhile concern the layout in question.
  const auto open = one.worth_measuring(job, layout).value();
  double sum = 0;
  for (const OpenEffect& effect : open) sum += effect.share;
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_THAT(open.front().what, HasSubstr("t"));
  EXPECT_GE(open.front().share, open.back().share);
}

TEST(StepCalibration, OtherModelsAreRefused) {
  const auto made = calibration_pricer().measured(steps_of(1, 1)).value();
  const auto other = made.predict(small_job(4096), layout_with(2, 1, 1));
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("measured steps: expected some of small"));
  EXPECT_THAT(other.error().message, HasSubstr("hidden 2048"));
  EXPECT_FALSE(calibration_pricer().measured({}));
  std::vector<MeasuredStep> without = steps_of(1, 1);
  without[0].step_ms = 0;
  EXPECT_FALSE(calibration_pricer().measured(without));
}

}  // namespace layout_step_calibration_test
}  // namespace perfmodel
