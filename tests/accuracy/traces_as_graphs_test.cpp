#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel {
namespace traces_as_graphs_test {

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
  }
}

}  // namespace traces_as_graphs_test
}  // namespace perfmodel
