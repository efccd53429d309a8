// The answer to a question of `predict`, without its command.
#include "predict/report_prediction.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perfmodel/graph/build_model.hpp"

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

}  // namespace report_prediction_test
}  // namespace perfmodel
