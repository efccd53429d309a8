// The needs of a whole run, by hand calculation.
#include "layout/training_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "../scratch.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace layout_training_run_test {

using testing::HasSubstr;

LayoutJob gpt3() {
  LayoutJob job;
  job.model = find_decoder("gpt3-175b").value().model;
  job.sequence = 2048;
  job.global_batch = 1536;
  return job;
}

RankedLayout on_1024_gpus(double step_ms) {
  return {.layout = {.dp = 16, .tp = 8, .pp = 8},
          .prediction = {.step_ms = step_ms, .low_ms = 0.9 * step_ms, .high_ms = 1.2 * step_ms}};
}

std::string refusal(const TrainingRunAsk& ask) {
  const auto question = training_run_question(ask, gpt3(), "h100-sxm-80gb", 700);
  return question ? "" : to_string(question.error());
}

// 300e9 / (1536 * 2048) = 95,367.4 steps; at 20 s each 95,368 * 20 / 86,400 = 22.0759 days.
TEST(TrainingRun, TakesDaysHoursMoneyAndEnergyOfItsSteps) {
  const auto question = training_run_question(
      {.tokens = "300G", .deadline = "25d", .usd_per_gpu_hour = "2"}, gpt3(), "h100-sxm-80gb", 700);
  ASSERT_TRUE(question) << to_string(question.error());
  const TrainingRun run = training_run(*question, gpt3(), on_1024_gpus(20'000));
  EXPECT_EQ(run.steps, 95'368);
  EXPECT_NEAR(run.days.expected, 22.0759, 1e-4);
  EXPECT_NEAR(run.days.low, 0.9 * 22.0759, 1e-4);
  EXPECT_NEAR(run.gpu_hours.expected, 22.0759 * 24 * 1024, 3);
  EXPECT_NEAR(run.usd->expected, 2 * 22.0759 * 24 * 1024, 6);
  EXPECT_NEAR(run.mwh.high, 1.2 * 22.0759 * 24 * 1024 * 700e-6, 0.01);
  EXPECT_TRUE(run.meets_deadline());  // though 26.5 days are possible
  EXPECT_EQ(training_run_json(run)["meets_deadline"], true);
  EXPECT_FALSE(run.checkpoints);
}

TEST(TrainingRun, CountsSamplesOfEpochs) {
  const auto question =
      training_run_question({.samples = "1M", .epochs = 3}, gpt3(), "h100-sxm-80gb", 700);
  EXPECT_EQ(question.value().tokens, 3e6 * 2048);
}

// 14 bytes per parameter at 100 GB/s; a failure of one of 1,024 GPUs every 50,000 / 1,024 hours.
TEST(TrainingRun, WritesCheckpointsWhereTheyLoseLeast) {
  const auto question = training_run_question({.tokens = "300G",
                                               .usd_per_gpu_hour = "",
                                               .storage_gb_per_s = 100,
                                               .mtbf_hours_per_gpu = 50'000,
                                               .restart_s = 600},
                                              gpt3(), "h100-sxm-80gb", 700);
  ASSERT_TRUE(question) << to_string(question.error());
  const double bytes = 14 * static_cast<double>(parameter_count(gpt3().model));
  const CheckpointPlan plan = checkpoint_plan(bytes, 1024, *question);
  EXPECT_NEAR(plan.stall_s, bytes / 100e9, 1e-9);
  const double mtbf = 50'000 * 3600.0 / 1024;
  const auto goodput = [&](double interval) {
    return interval /
           (mtbf * std::exp(600 / mtbf) * (std::exp((interval + plan.stall_s) / mtbf) - 1));
  };
  EXPECT_NEAR(plan.goodput, goodput(*plan.interval_s), 1e-9);
  for (const double factor : {0.8, 1.25})
    EXPECT_LT(goodput(factor * *plan.interval_s), plan.goodput);
  // To first order: sqrt(2 stall MTBF).
  EXPECT_NEAR(*plan.interval_s, std::sqrt(2 * plan.stall_s * mtbf), plan.stall_s);
  const TrainingRun run = training_run(*question, gpt3(), on_1024_gpus(20'000));
  EXPECT_NEAR(run.days.expected, 22.0759 / plan.goodput, 1e-3);
}

TEST(TrainingRun, TakesThePriceOfItsGpuFromAFile) {
  const std::string file = test_support::scratch_file("prices.json");
  std::ofstream(file) << R"({"a100-sxm-80gb": 1.2, "h100-sxm-80gb": 2.5})";
  const auto question = training_run_question({.tokens = "1T", .usd_per_gpu_hour = file}, gpt3(),
                                              "h100-sxm-80gb", 700);
  ASSERT_TRUE(question) << to_string(question.error());
  EXPECT_EQ(question->usd_per_gpu_hour, 2.5);
  std::ofstream(file) << R"({"a100-sxm-80gb": 1.2})";
  EXPECT_THAT(refusal({.tokens = "1T", .usd_per_gpu_hour = file}), HasSubstr("h100-sxm-80gb"));
}

TEST(TrainingRun, RefusesWhatIsNoRun) {
  EXPECT_THAT(refusal({.tokens = "15X"}), HasSubstr("--tokens: expected a count above 0"));
  EXPECT_THAT(refusal({.tokens = "-1"}), HasSubstr("found \"-1\""));
  EXPECT_THAT(refusal({.tokens = "1T", .samples = "1M"}), HasSubstr("found both"));
  EXPECT_THAT(refusal({.deadline = "30d"}),
              HasSubstr("--deadline: expected --tokens or --samples"));
  EXPECT_THAT(refusal({.tokens = "1T", .deadline = "30"}), HasSubstr("30d, 12h or 90min"));
  EXPECT_THAT(refusal({.tokens = "1T", .usd_per_gpu_hour = "0"}), HasSubstr("a price above 0"));
  EXPECT_THAT(refusal({.tokens = "1T", .usd_per_gpu_hour = "nothere.json"}), HasSubstr("nothere"));
  EXPECT_EQ(refusal({}), "");
}

}  // namespace layout_training_run_test
}  // namespace perfmodel
