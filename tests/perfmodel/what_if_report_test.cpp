// Variants of a graph on several targets, without the command `whatif`.
#include "whatif/what_if_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "whatif/what_if_results.hpp"

namespace perfmodel {
namespace what_if_report_test {

using testing::ElementsAre;
using testing::HasSubstr;

const sweep::RewriteAxis::Value kSame = {.text = "same"};

sweep::RewriteAxis::Value changed(const std::string& flag, const std::string& text) {
  const auto same = [](const ExecutionGraph& graph) -> Result<ExecutionGraph> { return graph; };
  return {.text = text, .rewrite = NamedRewrite{flag + " " + text, same}};
}

WhatIfReport crossed() {
  WhatIfReport report{
      .graph_file = "mlp.json",
      .axes = {{.name = "batch", .values = {kSame, changed("--batch", "16")}},
               {.name = "optimizer", .values = {kSame, changed("--optimizer", "fused")}}}};
  EXPECT_TRUE(cross_axes(report));
  return report;
}

TEST(CrossAxes, LastAxisIsFastestAfterTheGraphAsItIs) {
  const WhatIfReport report = crossed();
  std::vector<std::string> names;
  for (const Variant& variant : report.variants) names.push_back(variant.name);
  EXPECT_THAT(names,
              ElementsAre("as it is", "optimizer fused", "batch 16", "batch 16, optimizer fused"));
  EXPECT_THAT(report.values, ElementsAre(ElementsAre("", ""), ElementsAre("", "fused"),
                                         ElementsAre("16", ""), ElementsAre("16", "fused")));
  EXPECT_EQ(report.variants[3].rewrites.size(), 2U);
}

TEST(CrossAxes, VariantsSayWhatTheyShareWithTheOneBefore) {
  WhatIfReport report{.axes = {{.name = "batch", .values = {changed("--batch", "16")}},
                               {.name = "optimizer",
                                .values = {kSame, changed("--optimizer", "fused"),
                                           changed("--optimizer", "8bit")}}}};
  ASSERT_TRUE(cross_axes(report));
  std::vector<std::size_t> shared;
  for (const Variant& variant : report.variants) shared.push_back(variant.shared);
  EXPECT_THAT(shared, ElementsAre(0, 0, 1, 1));
}

TEST(CrossAxes, WithoutAxesTheGraphAsItIsRemains) {
  WhatIfReport report;
  ASSERT_TRUE(cross_axes(report));
  ASSERT_EQ(report.variants.size(), 1U);
  EXPECT_TRUE(report.variants[0].rewrites.empty());
}

TEST(CrossAxes, RefusesMoreThanAMillionVariants) {
  WhatIfReport report;
  const std::vector<sweep::RewriteAxis::Value> values(101, kSame);
  for (const char* name : {"a", "b", "c"}) report.axes.push_back({.name = name, .values = values});
  const auto refused = cross_axes(report);  // 101^3 = 1,030,301
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("at most 1000000 variants"));
}

// A step of 100 us for 8 samples, one of 150 us for 16, and a refusal.
WhatIfReport answered() {
  WhatIfReport report = crossed();
  report.variants.resize(3);
  report.values.resize(3);
  report.targets.resize(1);
  report.targets[0].gpu.name = "a-gpu";
  report.answers = {{.variant = 0, .e2e_us = 100, .batch = 8, .bound = "host"},
                    {.variant = 1, .e2e_us = 150, .batch = 16, .bound = "gemm"},
                    {.variant = 2, .error = Error{.message = "expected less"}}};
  report.answers[1].unmodelled_ops = {"aten::a", "aten::b"};
  report.answers[0].unmodelled_ops = {"aten::b"};
  return report;
}

TEST(WhatIfReport, SpeedUpCountsSamples) {
  const WhatIfReport report = answered();
  EXPECT_DOUBLE_EQ(speed_up(report, report.answers[0]), 1);
  EXPECT_DOUBLE_EQ(speed_up(report, report.answers[1]), 100.0 / 150 * 16 / 8);
  EXPECT_EQ(speed_up(report, report.answers[2]), 0);
}

TEST(WhatIfReport, NamesOpsWithoutAModelOnce) {
  EXPECT_THAT(unmodelled_ops(answered()), ElementsAre("aten::b", "aten::a"));
}

TEST(WhatIfReport, JsonHasARowPerAnswer) {
  const OrderedJson json = what_if_json(answered());
  EXPECT_EQ(json["gpus"], OrderedJson({"a-gpu"}));
  ASSERT_EQ(json["rows"].size(), 3U);
  EXPECT_EQ(json["rows"][1]["rewrites"]["batch"], nullptr);
  EXPECT_EQ(json["rows"][1]["rewrites"]["optimizer"], "fused");
  EXPECT_EQ(json["rows"][1]["samples_per_s"], 106666.667);
  EXPECT_THAT(json["rows"][2]["error"].get<std::string>(), HasSubstr("expected less"));
  EXPECT_FALSE(json["rows"][2].contains("e2e_us"));
}

TEST(WhatIfReport, CsvHasARowPerAnswer) {
  const std::string csv = what_if_csv(answered());
  EXPECT_THAT(csv, testing::StartsWith("variant,batch,optimizer,gpu,e2e_us,samples_per_s,"
                                       "speed_up,gpu_active_us,cpu_us,bound,bound_share,kernels,"));
  EXPECT_THAT(csv, HasSubstr("\nas it is,,,a-gpu,100.000,80000.000,1.0000,0.000,0.000,host,"));
  EXPECT_THAT(csv, HasSubstr("\noptimizer fused,,fused,a-gpu,150.000,106666.667,1.3333,"));
  EXPECT_THAT(csv, HasSubstr("\nbatch 16,16,,a-gpu,,,,,,,,,,,,,,,,,,expected less\n"));
}

}  // namespace what_if_report_test
}  // namespace perfmodel
