// Errors of kernel models and answers of fits, as documents and tables have them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "learned/graph_errors.hpp"
#include "learned/model_errors.hpp"
#include "learned/train_results.hpp"

namespace perfmodel::training {
namespace learned_errors_test {

TEST(LearnedErrors, MeansOfPublishedPredictorsAreOfTheirOwnRows) {
  JudgedGraph whole{.measured = {.measured_ms = 100}, .predicted_ms = 110, .heuristic_ms = 80};
  whole.measured.neusight_ms = 150;
  JudgedGraph published = whole;
  published.measured.roofline_ms = 50;
  published.measured.habitat_ms = published.measured.li_ms = 200;
  const GraphErrors errors = errors_of("all", {&whole, &published});
  EXPECT_EQ(errors.rows, 2u);
  EXPECT_NEAR(errors.learned, 0.1, 1e-12);
  EXPECT_NEAR(errors.heuristic, 0.2, 1e-12);
  EXPECT_NEAR(errors.neusight, 0.5, 1e-12);
  EXPECT_NEAR(errors.roofline, 0.5, 1e-12);  // only the second row has one
  EXPECT_NEAR(errors.habitat, 1, 1e-12);
  EXPECT_TRUE(std::isnan(errors_of("none", {}).li));
  EXPECT_EQ(errors_of("none", {}).learned, 0);
}

TEST(LearnedErrors, UnknownPredictionsAreEmptyCells) {
  JudgedGraph graph{.measured = {.measured_ms = 100}, .predicted_ms = 110};
  EXPECT_EQ(named_field(kJudgedGraphColumns, "error").text(graph), "+10.0");
  EXPECT_EQ(named_field(kJudgedGraphColumns, "li_error").text(graph), "");
  EXPECT_EQ(named_field(kGraphErrorFields, "li_mape").text(errors_of("none", {})), "");
}

TEST(LearnedErrors, DocumentOfAJudgedModel) {
  const JudgedModel judged{.model = "model.json",
                           .all = {.name = "all", .learned = {.rows = 2, .mape = 0.25}},
                           .by_device = {{.name = "t4"}},
                           .unseen_rows = 1};
  const OrderedJson json = judged_model_json(judged);
  EXPECT_EQ(json["rows"], 2);
  EXPECT_EQ(json["mape"], 0.25);
  EXPECT_EQ(json["rows_of_unseen_gpus"], 1);
  EXPECT_FALSE(json["by_device"]["t4"].contains("name"));
  EXPECT_FALSE(json.contains("by_op"));
}

TEST(LearnedErrors, DocumentOfAFit) {
  ModelReport model{.name = "gemm", .rows = 9, .left_out = {{.gpu = "t4"}}};
  model.farther_left_out = model.left_out;
  const OrderedJson json = train_json({.models = {model}}, "models/");
  EXPECT_EQ(json["model"], "models");
  EXPECT_EQ(json["models"][0]["left_out"]["t4"]["knowledge"], "none");
  EXPECT_EQ(json["models"][0]["farther_left_out"][0]["gpu"], "t4");
  EXPECT_FALSE(json["models"][0].contains("file"));
  EXPECT_EQ(named_field(kLeftOutColumns, "best_ratio").text(model.left_out[0]), "");
}

TEST(LearnedErrors, FamiliesWithoutModelsAreRefused) {
  const auto options = train_options({.data = {"x/data.csv"}, .family = "gemms"});
  ASSERT_FALSE(options);
  EXPECT_NE(options.error().message.find("found \"gemms\""), std::string::npos);
  const auto paper = train_options({.data = {"x/data.csv"}, .rows = "paper"});
  ASSERT_TRUE(paper);
  EXPECT_EQ(paper->rows, RowChoice::kPaper);
  EXPECT_NE(paper->card.find("\"data.csv\""), std::string::npos);
}

}  // namespace learned_errors_test
}  // namespace perfmodel::training
