// Reports about layouts as values, without the command.
#include "layout/layout_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace perfmodel {
namespace layout_report_test {

using testing::HasSubstr;
using testing::IsEmpty;

const TakeWarning kQuiet = [](const std::string&) {};

LayoutInputs llama_on_a100() {
  LayoutInputs inputs;
  inputs.model = "llama2-7b";
  inputs.global_batch = 64;
  inputs.machine.gpu = "a100-sxm-80gb";
  return inputs;
}

TEST(LayoutReport, PricesTheNamedLayout) {
  LayoutInputs inputs = llama_on_a100();
  inputs.lists.dp = {4};
  inputs.lists.tp = {2};
  auto report = named_layout_report(inputs, kQuiet);
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_EQ(report->gpus, 8);
  EXPECT_GT(report->layouts.at(0).prediction.step_ms, 0);
  EXPECT_EQ(software_words(*report), "megatron-deepspeed");  // fitted to runs on A100
  for (const std::string& warning : report->warnings) {
    EXPECT_EQ(warning.find("software"), std::string::npos) << warning;
  }
  ASSERT_TRUE(add_layout({.dp = 8}, *report));
  const OrderedJson json = layout_json(*report);
  EXPECT_EQ(json["layouts"].size(), 2u);
  EXPECT_EQ(json["layouts"][0]["tp"], 2);
  EXPECT_FALSE(json.contains("search"));
  EXPECT_FALSE(json["worth_measuring"].is_null());
}

TEST(LayoutReport, SearchesNeedAWorld) {
  auto report = load_layout(llama_on_a100(), kQuiet);
  ASSERT_TRUE(report) << to_string(report.error());
  const auto ranked = report_ranking(llama_on_a100(), 1, {}, nullptr, *report);
  EXPECT_EQ(ranked.error().message, "expected --world (GPUs), found none");
  EXPECT_THAT(report->layouts, IsEmpty());
}

TEST(LayoutReport, RowsOfATableTakeNoFlags) {
  LayoutInputs inputs = llama_on_a100();
  EXPECT_TRUE(refuse_row_fields(inputs));
  inputs.lists.micro_batch = {2};
  EXPECT_THAT(refuse_row_fields(inputs).error().message, HasSubstr("found --micro-batch with"));
  inputs.lists.micro_batch.clear();
  inputs.searched_stages = true;
  EXPECT_THAT(refuse_row_fields(inputs).error().message, HasSubstr("--stages searched"));
}

TEST(LayoutReport, SweepsSayWhyAValueHasNoLayout) {
  const RankedLayout best = {.layout = {.cp = 2, .ep = 4, .dispatcher = Dispatcher::kDeepEp}};
  const std::string table =
      layout_sweep_csv("world", {{.value = "8", .best = best}, {.value = "16", .error = "none"}});
  EXPECT_THAT(table, HasSubstr("recompute,error,cp,ep,schedule,dispatcher,offload\n"));
  EXPECT_THAT(table, HasSubstr(",none,,2,4,1f1b,deepep,none\n"));
  const std::vector<LayoutSweepRow> rows = {{.value = "8", .error = "too \"small\""}};
  EXPECT_THAT(layout_sweep_csv("world", rows), HasSubstr("\n8,,,,,,,,,,,,\"too 'small'\",,,,,\n"));
  EXPECT_EQ(layout_sweep_json("world", rows).dump(),
            "{\"axis\":\"world\",\"rows\":[{\"value\":\"8\",\"best\":null,"
            "\"error\":\"too \\\"small\\\"\"}]}");
}

TEST(CalibrateMachine, ExpectsMeasuredSteps) {
  EXPECT_EQ(calibrate_machine(llama_on_a100(), "", kQuiet).error().message,
            "expected --measured (steps of this machine), found none");
}

}  // namespace layout_report_test
}  // namespace perfmodel
