#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/detail/trace_comparison.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel {
namespace {

double sum(const std::vector<TraceComparison::Term>& terms, double TraceComparison::Term::*side) {
  double all = 0;
  for (const auto& term : terms) all += term.*side;
  return all;
}

// What a step is made of adds up to it, measured and predicted, by terms and by ops.
void check_sums(const TraceComparison& against, double wall_us, const Prediction& prediction) {
  using Term = TraceComparison::Term;
  EXPECT_NEAR(against.step_before_us, wall_us, 1e-3);
  EXPECT_NEAR(against.step_after_us, prediction.e2e_us, 1e-3);
  for (const auto* terms : {&against.terms, &against.host_terms}) {
    EXPECT_NEAR(sum(*terms, &Term::before_us), against.step_before_us, 0.01);
    EXPECT_NEAR(sum(*terms, &Term::after_us), against.step_after_us, 0.01);
  }
  // What is not idle is what is active; by-kind unions are rounded to nanoseconds.
  EXPECT_NEAR(against.step_after_us - against.terms.back().after_us, prediction.gpu_active_us, 1);
  const auto wait = std::ranges::find(against.host_terms, "wait", &Term::name);
  ASSERT_NE(wait, against.host_terms.end());
  double host_before = 0, host_after = 0, device_before = 0, device_after = 0;
  for (const auto& op : against.ops) {
    host_before += op.host_before_us;
    host_after += op.host_after_us;
    device_before += op.before_us;
    device_after += op.after_us;
  }
  EXPECT_NEAR(host_before + wait->before_us, against.step_before_us, 0.01);
  EXPECT_NEAR(host_after + wait->after_us, against.step_after_us, 0.01);
  EXPECT_NEAR(device_after, prediction.kernel_sum_us, 0.01);
  for (const auto& family : against.families) {
    device_before -= family.before_us;
    device_after -= family.after_us;
  }
  EXPECT_NEAR(device_before, 0, 0.01);
  EXPECT_NEAR(device_after, 0, 0.01);
}

// A Kineto trace alone, its own host and its own kernel times: what the schedule makes of the graph
// that was made from it. Measured step and GPU time are those of the same trace.
TEST(TracesAsGraphs, StepsOfDlrmFromTheTraceAlone) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!folder) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA does not name the public data";
  const auto data = find_data_folder();
  ASSERT_TRUE(data);
  const auto gpu = find_gpu("v100-sxm2-32gb", *data / "gpus");
  ASSERT_TRUE(gpu);
  for (const std::string rank : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(rank);
    const auto trace = read_trace(std::filesystem::path(folder) / "traces" /
                                  ("dlrm_v100_rank" + rank + "of8_kineto.json.gz"));
    ASSERT_TRUE(trace);
    const auto made = graph_from_trace(*trace);
    ASSERT_TRUE(made) << made.error().message;
    const OverheadSource source{.trace = &*trace, .graph = &made->graph};
    const auto table = extract_overheads(std::span(&source, 1), {});
    ASSERT_TRUE(table) << table.error().message;
    const auto times = kernel_times(made->graph, *trace);
    ASSERT_TRUE(times) << times.error().message;
    const auto prediction = predict(made->graph, *gpu, *table, {.kernel_times = &*times});
    ASSERT_TRUE(prediction) << prediction.error().message;
    const auto measured = report(*trace);
    ASSERT_TRUE(measured);
    const double step = prediction->e2e_us / measured->iterations.at(0).wall_us - 1;
    const double active = prediction->gpu_active_us / measured->iterations.at(0).gpu_busy_us - 1;
    std::printf("DLRM rank %s: step %+.2f %%, GPU %+.2f %%\n", rank.c_str(), 100 * step,
                100 * active);
    EXPECT_LT(std::abs(step), 0.02);
    EXPECT_LT(std::abs(active), 0.05);
    const auto against = compare(*trace, *prediction);
    ASSERT_TRUE(against) << against.error().message;
    check_sums(*against, measured->iterations.at(0).wall_us, *prediction);
  }
}

}  // namespace
}  // namespace perfmodel
