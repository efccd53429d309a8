// Comparisons of steps as JSON.
#include "trace/comparison_results.hpp"

#include <gtest/gtest.h>

namespace perfmodel {
namespace comparison_results_test {

TraceComparison::Change change(std::string op, std::string shapes, std::string kernel) {
  return {.op = std::move(op),
          .shapes = std::move(shapes),
          .kernel = std::move(kernel),
          .count_before = 1,
          .count_after = 2,
          .before_us = 10,
          .after_us = 12.5,
          .host_before_us = 3,
          .host_after_us = 4};
}

TraceComparison comparison() {
  TraceComparison made{.steps_before = 2,
                       .steps_after = 1,
                       .step_before_us = 100,
                       .step_after_us = 110,
                       .terms = {{"compute", 60, 66}},
                       .host_terms = {{"wait", 40, 44}},
                       .steps = {{"step 0", "step 1", 100, 110}}};
  made.ops = {change("aten::mm", "", "")};
  return made;
}

TEST(ComparisonResults, OpsHaveHostTimeAndKernelsTheirName) {
  TraceComparison made = comparison();
  made.kernels = {change("aten::mm", "[2, 3]", "sgemm")};
  const OrderedJson json = comparison_json(made, "a.json", "b.json");
  EXPECT_EQ(json["ops"][0].dump(),
            R"({"op":"aten::mm","shapes":null,"count_before":1.0,"count_after":2.0,)"
            R"("before_us":10.0,"after_us":12.5,"change_us":2.5,)"
            R"("host_before_us":3.0,"host_after_us":4.0})");
  EXPECT_EQ(json["kernels"][0].dump(),
            R"({"op":"aten::mm","shapes":"[2, 3]","kernel":"sgemm","count_before":1.0,)"
            R"("count_after":2.0,"before_us":10.0,"after_us":12.5,"change_us":2.5})");
  EXPECT_EQ(json["terms"][0].dump(),
            R"({"term":"compute","before_us":60.0,"after_us":66.0,"change_us":6.0})");
  EXPECT_EQ(json["change_us"], 10);
}

TEST(ComparisonResults, AnOpAgainstATraceHasItsFamilies) {
  TraceComparison made = comparison();
  made.kernels = {change("aten::mm", "", "gemm"), change("aten::add", "", "elementwise")};
  made.families = {change("", "", "gemm")};
  const OrderedJson json = against_json(made, "a.json");
  EXPECT_EQ(json["ops"][0].dump(),
            R"({"op":"aten::mm","measured_count":1.0,"predicted_count":2.0,"measured_us":10.0,)"
            R"("predicted_us":12.5,"change_us":2.5,"measured_host_us":3.0,)"
            R"("predicted_host_us":4.0,"host_change_us":1.0,"families":[{"family":"gemm",)"
            R"("measured_count":1.0,"predicted_count":2.0,"measured_us":10.0,)"
            R"("predicted_us":12.5,"change_us":2.5}]})");
  EXPECT_EQ(json["families"].size(), 1u);
  EXPECT_EQ(json["error"], 0.1);
  EXPECT_EQ(json["host_terms"][0]["term"], "wait");
}

TEST(ComparisonResults, WithoutAMeasuredTimeThereIsNoError) {
  EXPECT_TRUE(against_json({}, "a.json")["error"].is_null());
}

}  // namespace comparison_results_test
}  // namespace perfmodel
