// The answer to a question of `predict`, without its command.
#include "predict/report_prediction.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perfmodel/graph/build_model.hpp"
#include "predict/prediction_fields.hpp"
#include "predict/prediction_json.hpp"

namespace perfmodel {
namespace report_prediction_test {

using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;

ExecutionGraph small_mlp() {
  MlpConfig config;
  config.widths = {256, 256, 256};
  config.batch = 64;
  return build_mlp(config).value();
}

/// One graph in the place of every file.
const QuestionReaders kReaders = {
    .programs = [](const std::vector<std::string>& files) -> Result<std::vector<RecordedProgram>> {
      return std::vector<RecordedProgram>(files.size(), {small_mlp(), nullptr});
    },
    .trace = [](const std::string&) -> Result<Trace> {
      return fail(ErrorCode::kIo, "expected no trace, found a question for one");
    }};

PredictionQuestion question_of(std::vector<std::string> graphs, std::string gpu) {
  PredictionQuestion question;
  question.graphs = std::move(graphs);
  question.gpu = std::move(gpu);
  question.models = "heuristic";
  return question;
}

TEST(ReportPrediction, NamesFilesWithoutTheirFolders) {
  const auto report = report_prediction(question_of({"a/b/mlp.json"}, "a100-sxm-80gb"), kReaders);
  ASSERT_TRUE(report) << to_string(report.error());
  ASSERT_THAT(report->ranks, SizeIs(1));
  EXPECT_EQ(report->ranks[0].graph_file, "mlp.json");
  EXPECT_EQ(report->ranks[0].prediction.batch, 64);
  EXPECT_GT(report->mean_e2e_us(), 0);
  EXPECT_GT(report->work.products.value, 0);
}

TEST(ReportPrediction, RefusesAWorldWithoutCollectives) {
  PredictionQuestion question = question_of({"mlp.json"}, "a100-sxm-80gb");
  question.world = 4;
  const auto report = report_prediction(question, kReaders);
  ASSERT_FALSE(report);
  EXPECT_THAT(to_string(report.error()), HasSubstr("expected collectives for 4 ranks, found none"));
}

TEST(ReportPrediction, CountsAlikeRanksOfAJobOnTwoKindsOfGpus) {
  PredictionQuestion question = question_of({"mlp.json"}, "h100-sxm-80gb:3,a100-sxm-80gb");
  question.strategy = ParallelStrategy::kDdp;
  const auto report = report_prediction(question, kReaders);
  ASSERT_TRUE(report) << to_string(report.error());
  ASSERT_THAT(report->ranks, SizeIs(2));
  EXPECT_EQ(report->ranks[0].mixed->count, 3);
  EXPECT_EQ(report->ranks[1].mixed->gpu, "a100-sxm-80gb");
  EXPECT_GT(report->ranks[0].prediction.communication.collectives, 0);
}

TEST(ReportPrediction, ListsOfUnlikeRanksHaveOneValuePerRank) {
  PredictionQuestion question = question_of({"mlp.json"}, "a100-sxm-80gb");
  question.world = 3;
  question.unlike.slowdowns = {1, 2};
  const auto report = report_prediction(question, kReaders);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("one value of --slowdown or one per rank (3)"));
}

TEST(ReportPrediction, AMeasuredStepTellsTheHost) {
  PredictionQuestion question = question_of({"mlp.json"}, "a100-sxm-80gb");
  question.measured.us = 5000;
  const auto report = report_prediction(question, kReaders);
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_NEAR(report->ranks[0].prediction.e2e_us, 5000, 5);
  ASSERT_TRUE(report->ranks[0].measured);
  EXPECT_THAT(report->warnings, Contains(HasSubstr("the measured step of 5.000 ms")));
}

TEST(ReportPrediction, AsJsonHasTheStepItsRanksAndWhereTheyComeFrom) {
  PredictionQuestion question = question_of({"mlp.json"}, "h100-sxm-80gb:3,a100-sxm-80gb");
  question.strategy = ParallelStrategy::kDdp;
  const auto report = report_prediction(question, kReaders);
  ASSERT_TRUE(report) << to_string(report.error());
  const OrderedJson json = prediction_json(*report);
  EXPECT_EQ(json.begin().key(), "gpu");
  ASSERT_THAT(json["ranks"], SizeIs(2));
  EXPECT_EQ(json["ranks"][0]["count"], 3);
  EXPECT_TRUE(json["ranks"][0]["link_gb_per_s"].is_null());
  EXPECT_EQ(json["e2e_us"], json["ranks"][json["slowest_rank"].get<int>()]["e2e_us"]);
  EXPECT_EQ(json["coverage"]["kernel_us_by_knowledge"].begin().key(), "board");
  EXPECT_EQ(json["provenance"]["kernel_models"], "heuristic");
  EXPECT_EQ(json["ops"][0]["key_levels"].size(), 2u);
  EXPECT_FALSE(json.contains("against"));
}

TEST(PredictionQuestion, SaysWhichFlagLeavesItWithoutAnAnswer) {
  EXPECT_FALSE(problem_of(question_of({"mlp.json"}, "t4")));
  EXPECT_EQ(problem_of(question_of({}, "t4"))->flag, "GRAPH");
  PredictionQuestion question = question_of({"a.json", "b.json"}, "t4");
  question.rank_start_us = {0};
  EXPECT_EQ(problem_of(question)->message, "expected one start per graph (2), found 1");
  question = question_of({"mlp.json"}, "t4");
  question.strategy = ParallelStrategy::kDdp;
  EXPECT_EQ(problem_of(question)->flag, "--world");
  question.world = 2;
  EXPECT_FALSE(problem_of(question));
  question.unit_mb = 1;
  EXPECT_EQ(problem_of(question)->flag, "--unit-mb");
  question.unlike.slowdowns = {2};
  question.iterations = {0, 1};
  EXPECT_EQ(problem_of(question)->flag, "--iterations");
}

}  // namespace report_prediction_test
}  // namespace perfmodel
