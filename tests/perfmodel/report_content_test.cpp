// Inputs of `analyze` and `report`, their findings and the page's document.
#include "report/report_content.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyze/finding_results.hpp"
#include "perfmodel/data_files.hpp"

namespace perfmodel {
namespace report_content_test {

using report_page::ReportContent;
using report_page::ReportQuestion;
using ::testing::HasSubstr;

Result<AnalyzedInputs> loaded(const AnalyzeQuestion& question, const std::vector<bool>& traces) {
  std::vector<RecordedProgram> programs;
  for (const bool is_trace : traces) {
    programs.emplace_back();
    if (is_trace) programs.back().trace = std::make_shared<const Trace>();
  }
  return load_analyzed(question, std::move(programs));
}

TEST(AnalyzedInputs, FilesAreOfOneKind) {
  const auto inputs = loaded({.files = {"a.json", "b.json"}}, {true, false});
  ASSERT_FALSE(inputs);
  EXPECT_EQ(inputs.error().file, "b.json");
  EXPECT_THAT(inputs.error().message, HasSubstr("traces alone or graphs alone"));
}

TEST(AnalyzedInputs, AGraphNeedsAGpu) {
  const auto inputs = loaded({.files = {"a.json"}}, {false});
  ASSERT_FALSE(inputs);
  EXPECT_THAT(inputs.error().message, HasSubstr("expected --gpu for a graph"));
}

TEST(AnalyzedInputs, ATraceIsJudgedAsRecorded) {
  const auto inputs = loaded({.files = {"a.json"}}, {true});
  ASSERT_TRUE(inputs) << to_string(inputs.error());
  EXPECT_TRUE(inputs->recorded);
  EXPECT_EQ(inputs->traces.size(), 1U);
  EXPECT_EQ(inputs->known_gpu(), nullptr);
  EXPECT_EQ(inputs->gpu_title(), "");
}

TEST(FindingResults, GainsThatCostNoTimeAreNull) {
  FindingsReport report{.files = {"a.json"}, .gpu = "", .found = {.step_us = 1000}};
  report.found.findings = {
      {.rule = "memory-limit", .title = "full", .where = "peak"},
      {.rule = "host-bound", .share = 1 / 3.0, .gain_us = 250, .confidence = Confidence::kHigh}};
  const OrderedJson json = findings_json(report);
  EXPECT_EQ(json["gpu"], nullptr);
  EXPECT_EQ(json["measured_us"], nullptr);
  EXPECT_EQ(json["findings"][0]["gain_us"], nullptr);
  EXPECT_EQ(json["findings"][1]["gain_us"], 250);
  EXPECT_EQ(json["findings"][1]["share"], 0.333333);
  EXPECT_EQ(json["findings"][1]["confidence"], "high");
}

TEST(ReportContent, ATitleNamesFilesGpuAndTheTraceBeside) {
  ReportContent content;
  EXPECT_EQ(title_of({.files = {"x/a.json", "b.json"}}, content), "a.json and b.json");
  EXPECT_EQ(title_of({.files = {"a", "b", "c"}}, content), "a and 2 more");
  content.sets.emplace_back().gpu = *find_gpu("a100-sxm-40gb", *find_data_folder() / "gpus");
  EXPECT_EQ(title_of({.files = {"a.json"}, .against = "x/t.json"}, content),
            "a.json on " + content.sets.front().gpu->title + " against t.json");
  EXPECT_EQ(title_of({.files = {"a.json"}, .title = "My step"}, content), "My step");
}

TEST(ReportContent, APageOfDocumentsHasNoRuns) {
  ReportContent content;
  content.documents.push_back({{"title", "What-if"}});
  const OrderedJson json = page_data({.files = {"x/w.json"}}, content, "title", nullptr);
  EXPECT_EQ(json["inputs"], OrderedJson::array({"w.json"}));
  EXPECT_EQ(json["relation"], "beside");
  EXPECT_TRUE(json["runs"].empty());
  EXPECT_EQ(json["documents"].size(), 1U);
  EXPECT_FALSE(json.contains("recording"));
}

TEST(ReportContent, PseudonymsReachKeysAndValues) {
  Anonymizer anonymizer;
  const OrderedJson json = report_page::anonymous_json(
      {{"/home/carol/a", OrderedJson::array({"/home/carol/b", 3})}}, anonymizer);
  EXPECT_EQ(json.dump().find("carol"), std::string::npos);
  EXPECT_EQ(json.begin().value()[1], 3);
}

}  // namespace report_content_test
}  // namespace perfmodel
