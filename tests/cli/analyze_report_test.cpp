#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "program.hpp"

namespace perfmodel::test_support {
namespace analyze_report_test {

using ::testing::HasSubstr;
using ::testing::Not;

std::string small_gpt() {
  static const std::string file =
      built("report_gpt.json", {"gpt", "--layers", "2", "--hidden", "512", "--heads", "8",
                                "--sequence", "256", "--batch", "16"});
  return file;
}

Json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const auto at = page.find(begin) + begin.size();
  return Json::parse(page.substr(at, page.find("</script>", at) - at), nullptr, false);
}

TEST(AnalyzeCli, APredictionInFp32OnAGpuWithMatrixUnits) {
  const auto outcome = run({"analyze", small_gpt(), "--gpu", "a100-sxm-40gb", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "perfmodel-analyze");
  EXPECT_GT(json["step_us"].get<double>(), 0);
  EXPECT_TRUE(json["measured_us"].is_null());
  ASSERT_FALSE(json["findings"].empty());
  double before = 1e300;
  bool fp32 = false;
  for (const Json& finding : json["findings"]) {
    for (const char* key : {"rule", "title", "where", "share", "gain_us", "gain_share",
                            "confidence", "advice", "folded"}) {
      EXPECT_TRUE(finding.contains(key)) << key;
    }
    if (finding["gain_us"].is_null()) continue;
    EXPECT_LE(finding["gain_us"].get<double>(), before);
    before = finding["gain_us"].get<double>();
    EXPECT_NEAR(finding["gain_us"].get<double>() / json["step_us"].get<double>(),
                finding["gain_share"].get<double>(), 1e-3);
    fp32 |= finding["rule"] == "fp32-products" && finding["gain_share"] > 0.1;
  }
  EXPECT_TRUE(fp32) << outcome.out;

  // The same step as `predict` has it.
  const auto predicted = run({"predict", small_gpt(), "--gpu", "a100-sxm-40gb", "--json"});
  EXPECT_NEAR(Json::parse(predicted.out)["e2e_us"].get<double>(), json["step_us"].get<double>(),
              2e-3 * json["step_us"].get<double>());
}

TEST(AnalyzeCli, PrintsFindingsThatGainEnough) {
  const Words words = {"analyze", small_gpt(), "--gpu", "a100-sxm-40gb"};
  const std::string text = output_of(words), full = output_of(with(words, {"--full"}));
  expect_narrow(text);
  expect_narrow(full);
  const Json json = json_of(words);
  EXPECT_THAT(text, HasSubstr("GPU    NVIDIA A100-SXM4-40GB (a100-sxm-40gb)"));
  std::size_t folded = 0;
  for (const Json& finding : json["findings"]) {
    const std::string rule = " [" + finding["rule"].get<std::string>() + "]";
    if (finding["folded"].get<bool>()) {
      ++folded;
    } else {
      EXPECT_THAT(text, HasSubstr(finding["rule"].get<std::string>()));
    }
    EXPECT_THAT(full, HasSubstr(finding["rule"].get<std::string>()));
  }
  if (folded > 0) {
    EXPECT_THAT(text,
                HasSubstr("\n  " + std::to_string(folded) + " more, each gains less than 2 %"));
  }
  EXPECT_THAT(full, Not(HasSubstr("gains less than 2 %")));
}

TEST(AnalyzeCli, SaysWhatItNeeds) {
  const auto graph = run({"analyze", small_gpt()});
  EXPECT_EQ(graph.status, 1);
  EXPECT_THAT(graph.err, HasSubstr("expected --gpu for a graph"));
  const auto rule = run({"analyze", small_gpt(), "--gpu", "t4", "--rules", "magic"});
  EXPECT_EQ(rule.status, 1);
  EXPECT_THAT(rule.err, HasSubstr("found \"magic\""));
  EXPECT_EQ(run({"report", small_gpt(), "--gpu", "t4", "-o", "page.txt"}).status, 2);
}

TEST(ReportCli, OneFileThatHoldsThePredictionAndNothingOfTheNetwork) {
  const std::string file = scratch_file("gpt.html");
  const std::string speedscope = scratch_file("gpt.speedscope.json");
  const auto outcome = run({"report", small_gpt(), "--gpu", "a100-sxm-40gb", "-o", file,
                            "--speedscope", speedscope, "--csv", scratch_file("gpt.csv")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, file + "\n");
  const std::string page = read(file);
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("<link rel=\"stylesheet\"")));
  EXPECT_LT(page.size(), 3'000'000U);
  const Json data = data_of(page);
  ASSERT_FALSE(data.is_discarded());
  EXPECT_EQ(data["schema"], "perfmodel-report");

  // Sums are as in `predict`.
  const auto predicted =
      Json::parse(run({"predict", small_gpt(), "--gpu", "a100-sxm-40gb", "--json"}).out);
  const Json& one = data["runs"][0];
  const auto near = [](const Json& a, const Json& b) {
    EXPECT_NEAR(a.get<double>(), b.get<double>(), 2e-3 * std::max(1.0, b.get<double>()));
  };
  near(one["step_us"], predicted["e2e_us"]);
  near(one["kernel_sum_us"], predicted["kernel_sum_us"]);
  near(one["active_us"], predicted["gpu_active_us"]);
  double kernels = 0, path = 0;
  for (const Json& row : one["totals"]["kernels"]) kernels += row[3].get<double>();
  for (const Json& row : one["path"]["rows"]) path += row[2].get<double>();
  EXPECT_NEAR(kernels, predicted["kernel_sum_us"].get<double>(), 2e-3 * kernels);
  EXPECT_NEAR(path, one["step_us"].get<double>(), 2e-3 * path);

  // Fewer slices than events: the sums stay, and the page says what it leaves out.
  const std::string few = scratch_file("few.html");
  ASSERT_EQ(
      run({"report", small_gpt(), "--gpu", "a100-sxm-40gb", "-o", few, "--slices", "10"}).status,
      0);
  const Json sampled = data_of(read(few))["runs"][0];
  EXPECT_EQ(sampled["kernels"]["name"].size(), 10U);
  EXPECT_EQ(sampled["left_out"].get<std::size_t>() + 20,
            one["ops"]["name"].size() + one["kernels"]["name"].size());
  EXPECT_EQ(sampled["totals"], one["totals"]);

  // Every frame that opens closes, in order, as speedscope's schema wants it.
  const Json profile = Json::parse(read(speedscope));
  EXPECT_EQ(profile["$schema"], "https://www.speedscope.app/file-format-schema.json");
  const auto frames = profile["shared"]["frames"].size();
  for (const Json& lane : profile["profiles"]) {
    std::vector<std::size_t> open;
    double now = lane["startValue"].get<double>();
    for (const Json& event : lane["events"]) {
      EXPECT_GE(event["at"].get<double>(), now);
      now = event["at"].get<double>();
      const auto frame = event["frame"].get<std::size_t>();
      ASSERT_LT(frame, frames);
      if (event["type"] == "O") {
        open.push_back(frame);
      } else {
        ASSERT_FALSE(open.empty());
        ASSERT_EQ(open.back(), frame);
        open.pop_back();
      }
    }
    EXPECT_TRUE(open.empty());
    EXPECT_GE(lane["endValue"].get<double>(), now);
  }
}

TEST(ReportCli, NamesWithMarkupStayNames) {
  const std::string trace = scratch_file("markup.json");
  std::ofstream(trace)
      << R"({"deviceProperties": [{"id": 0, "name": "Tesla V100"}], "traceEvents": [)"
      << R"({"ph":"X","cat":"cpu_op","name":"</script><script>alert(1)</script>","pid":1,"tid":1,"ts":0,"dur":50,"args":{}},)"
      << R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":5,"dur":5,"args":{"correlation":1}},)"
      << R"({"ph":"X","cat":"kernel","name":"<img src=x onerror=alert(1)>","pid":0,"tid":7,"ts":12,"dur":30,)"
      << R"("args":{"device":0,"stream":7,"correlation":1}}]})";
  const std::string file = scratch_file("markup.html");
  const auto outcome = run({"report", trace, "-o", file, "--title", "<b>bold</b>"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string page = read(file);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("<title>&lt;b&gt;bold"));
  const Json data = data_of(page);
  ASSERT_FALSE(data.is_discarded());
  EXPECT_THAT(data["names"].dump(), HasSubstr("</script><script>alert(1)"));

  std::ofstream(trace) << R"({"traceEvents": []})";
  const auto empty = run({"report", trace, "-o", file});
  EXPECT_EQ(empty.status, 1);
  EXPECT_THAT(empty.err, HasSubstr("expected"));
}

TEST(ReportCli, DocumentsOfOtherCommands) {
  const std::string document = scratch_file("whatif.json");
  std::ofstream(document)
      << run({"whatif", small_gpt(), "--gpus", "t4,a100-sxm-40gb", "--batch", "8", "--json"}).out;
  const std::string file = scratch_file("whatif.html");
  ASSERT_EQ(run({"report", document, "-o", file}).status, 0);
  const Json data = data_of(read(file));
  const Json rows = Json::parse(read(document))["rows"];
  const Json& bars = data["documents"][0]["bars"]["rows"];
  ASSERT_EQ(bars.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(bars[i]["value"], rows[i]["e2e_us"]);
}

TEST(ReportCli, TwoRunsAreComparedToTheSum) {
  const std::string file = scratch_file("compared.html");
  const auto outcome = run({"report", small_gpt(), "--gpu", "a100-sxm-40gb", "--compare",
                            small_gpt(), "--compare-gpu", "mi300x", "-o", file});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json data = data_of(read(file));
  const Json& comparison = data["comparison"];
  EXPECT_THAT(comparison["after"].get<std::string>(), HasSubstr("MI300X"));
  EXPECT_EQ(data["runs"][1]["step_us"], comparison["after_us"]);
  EXPECT_EQ(comparison["sides"], Json({"before", "after"}));
  EXPECT_EQ(comparison["tables"].size(), 5U);
  const double change =
      comparison["after_us"].get<double>() - comparison["before_us"].get<double>();
  for (const Json& table : comparison["tables"]) {
    double sum = 0;
    for (const Json& row : table["rows"]) sum += row[3].get<double>();
    EXPECT_NEAR(sum, change, 1e-6) << table["by"];
  }
}

TEST(ReportCli, WhatCannotBeComparedIsRefused) {
  const std::string file = scratch_file("never.html");
  const auto list = run({"report", "a.kernels.json", "-o", file});
  EXPECT_EQ(list.status, 1);
  EXPECT_THAT(list.err, HasSubstr("expected --compare with a list of kernels"));
  EXPECT_EQ(run({"report", small_gpt(), "--gpu", "t4", "--compare-gpu", "l4", "-o", file}).status,
            2);
  const auto two = run(
      {"report", small_gpt(), small_gpt(), "--gpu", "t4", "--compare", small_gpt(), "-o", file});
  EXPECT_EQ(two.status, 1);
}

}  // namespace analyze_report_test
}  // namespace perfmodel::test_support
