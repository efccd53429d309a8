// How long a job takes on kinds and numbers of GPUs.
#include "perfmodel/job_duration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "perfmodel/graph/build_model.hpp"
#include "whatif/job_duration_results.hpp"

namespace perfmodel {
namespace job_duration_test {

using testing::HasSubstr;

const Predictor& predictor() {
  static const Predictor loaded = *Predictor::load({.gpus = {"a100-sxm-40gb", "h100-sxm-80gb"}});
  return loaded;
}
const PreparedGraph& dlrm() {
  static const PreparedGraph graph =
      *predictor().prepare(*build_model({.family = "dlrm", .batch = 2048}));
  return graph;
}

TEST(JobDuration, QuantilesMeetTheRangeOfTheStep) {
  const JobDuration row{.step_us = 1e6, .low_us = 0.8e6, .high_us = 1.5e6, .steps = 100};
  EXPECT_NEAR(*row.seconds(0.5), 100, 1e-9);
  EXPECT_NEAR(*row.seconds(0.05), 80, 1e-6);
  EXPECT_NEAR(*row.seconds(0.95), 150, 1e-6);
  EXPECT_NEAR(*row.seconds(0.9), 100 * std::pow(1.5, 1.2815515655 / 1.6448536270), 1e-5);
  EXPECT_FALSE(JobDuration{.step_us = 1}.seconds(0.5));  // no length of the job
}

TEST(JobDuration, RowsAreAsPredictSays) {
  const auto rows = job_durations(predictor(), dlrm(), {.worlds = {1, 8}, .samples = 1e9});
  ASSERT_TRUE(rows) << to_string(rows.error());
  ASSERT_EQ(rows->size(), 4U);
  const auto alone = predictor().predict(dlrm(), "h100-sxm-80gb", {});
  EXPECT_EQ((*rows)[2].gpu, "h100-sxm-80gb");
  EXPECT_EQ((*rows)[2].step_us, alone->e2e_us);
  EXPECT_EQ(*(*rows)[2].steps, std::ceil(1e9 / 2048));
  const auto eight = predictor().predict(dlrm(), "h100-sxm-80gb",
                                         {.world = 8, .strategy = ParallelStrategy::kDdp});
  EXPECT_EQ((*rows)[3].step_us, eight->e2e_us);
  EXPECT_EQ((*rows)[3].samples_per_step, 8 * 2048);
  EXPECT_EQ(*(*rows)[3].steps, std::ceil(1e9 / (8 * 2048)));
  EXPECT_LT((*rows)[3].seconds(0.9), (*rows)[2].seconds(0.9));
}

TEST(JobDuration, HasARangeAndAStepAtLeast) {
  const auto rows =
      job_durations(predictor(), dlrm(),
                    {.gpus = {"h100-sxm-80gb"}, .samples = 1e-9, .ask = {.times_only = true}});
  ASSERT_TRUE(rows) << to_string(rows.error());
  EXPECT_EQ(*rows->front().steps, 1);
  EXPECT_GT(*rows->front().seconds(0.05), 0);
  EXPECT_LT(*rows->front().seconds(0.05), *rows->front().seconds(0.5));
}

TEST(JobDuration, TokensAreSamplesOfASequence) {
  const PreparedGraph gpt = *predictor().prepare(
      *build_model({.family = "gpt", .preset = "gpt2", .batch = 4, .layers = 1}));
  JobDurationQuestion question{.gpus = {"h100-sxm-80gb"}, .tokens = 1024 * 4 * 100};
  EXPECT_THAT(job_durations(predictor(), gpt, question).error().message, HasSubstr("sequence"));
  question.ask.sequence = 1024;
  const auto rows = job_durations(predictor(), gpt, question);
  ASSERT_TRUE(rows) << to_string(rows.error());
  EXPECT_EQ(*rows->front().steps, 100);
}

TEST(JobDuration, BadQuestionsAreRefusedByName) {
  const auto message = [](const JobDurationQuestion& question) {
    const auto rows = job_durations(predictor(), dlrm(), question);
    return rows ? "" : rows.error().message;
  };
  EXPECT_THAT(message({.worlds = {}}), HasSubstr("worlds"));
  EXPECT_THAT(message({.worlds = {0}}), HasSubstr("worlds"));
  EXPECT_THAT(message({.samples = 1, .tokens = 1}), HasSubstr("found both"));
  EXPECT_THAT(message({.samples = 0}), HasSubstr("samples: expected a number above 0"));
  EXPECT_THAT(message({.gpus = {"h1000"}}), HasSubstr("h1000"));
}

TEST(JobDuration, WhatCannotRunIsARowThatSaysWhy) {
  const JobDuration row{.gpu = "t4", .error = Error{.message = "no such unit"}};
  const OrderedJson json = json_object(row, kJobDurationFields);
  EXPECT_EQ(json["error"], "no such unit");
  EXPECT_EQ(json["step_us"], nullptr);
  EXPECT_EQ(json["duration_s"], nullptr);
}

}  // namespace job_duration_test
}  // namespace perfmodel
