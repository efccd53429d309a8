// `predict --timeline`: lanes, slices and arrows, and the file read as a trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace timeline_test {

TEST(Timeline, SlicesNestOnNamedLanesAndHoldEveryKernel) {
  const fs::path file = scratch() / "timeline.json";
  Words words = predict_words(built_graph());
  words.insert(words.end(), {"--timeline", file.string()});
  const Json p = json_of(words);
  const Json timeline = Json::parse(read(file));
  std::set<std::pair<int, int>> named;
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  std::size_t kernels = 0, ops = 0;
  std::map<std::string, std::size_t> arrows;  // by category and phase
  for (const Json& event : timeline["traceEvents"]) {
    if (event["ph"] == "s" || event["ph"] == "t" || event["ph"] == "f") {
      ++arrows[event["cat"].get<std::string>() + " " + event["ph"].get<std::string>()];
      continue;
    }
    const std::pair<int, int> lane{event["pid"], event["tid"]};
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") named.insert(lane);
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    lanes[lane].emplace_back(event["ts"], event["dur"]);
    EXPECT_GE(event["dur"], 0);
    ops += event["cat"] == "cpu_op";
    if (event["cat"] == "kernel" && event["args"].value("step", "") != "before") {
      ++kernels;
      for (const char* key : {"model", "bound", "in_range"}) {
        EXPECT_TRUE(event["args"].contains(key)) << key;
      }
    }
  }
  double predicted_kernels = 0;
  for (const Json& family : p["kernels_by_family"]) {
    if (family["family"] != "copy" && family["family"] != "set") {
      predicted_kernels += family["count"].get<double>();
    }
  }
  EXPECT_EQ(kernels, predicted_kernels);
  EXPECT_EQ(ops, p["ops"].size());
  EXPECT_GT(arrows["ac2g s"], 0U);
  EXPECT_EQ(arrows["ac2g s"], arrows["ac2g f"]);
  EXPECT_EQ(arrows["critical_path s"], arrows["critical_path f"]);
  EXPECT_GE(arrows["critical_path s"], 1U);
  for (auto& [lane, slices] : lanes) {
    EXPECT_TRUE(named.contains(lane)) << lane.first << "/" << lane.second;
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;  // ends of the slices around
    for (const auto& [start, duration] : slices) {
      while (!open.empty() && open.back() <= start + 1e-6) open.pop_back();
      EXPECT_TRUE(open.empty() || start + duration <= open.back() + 2e-3);  // stamps are rounded
      open.push_back(start + duration);
    }
  }
}

TEST(Timeline, CanBeReadAndReplayedAsATrace) {
  // Once the host is the limit, and once the device, which then lags by more than a step.
  for (const std::string slower : {"1", "300"}) {
    SCOPED_TRACE(slower);
    const std::string graph = scratch_file("timed_" + slower + ".json");
    const std::string file = scratch_file("as_trace.json");
    run({"rewrite", built_graph(), "--scale-kernel", "aten::*=" + slower, "-o", graph});
    Words words = predict_words(graph);
    words.insert(words.end(), {"--timeline", file});
    const Json p = json_of(words);
    const Json trace = json_of({"trace", file});
    EXPECT_EQ(trace["gpu"], "NVIDIA Tesla V100-SXM2-16GB");
    ASSERT_EQ(trace["iterations"].size(), 1U);
    EXPECT_NEAR(trace["iterations"][0]["wall_us"], p["e2e_us"], 0.01);
    // Work of the step before is in the file, too.
    EXPECT_GE(trace["gpu_busy_us"].get<double>(), p["gpu_active_us"].get<double>() - 0.5);
    const Json replayed = json_of({"replay", file});
    const double predicted = p["e2e_us"];
    EXPECT_NEAR(replayed["iterations"][0]["replayed_us"], predicted, 1e-4 * predicted);
    EXPECT_NEAR(replayed["unrecorded_device_us"], 0, 1);
    if (slower == "1") continue;
    const Json half = json_of({"replay", file, "--scale-kernels", "0.5"});
    EXPECT_NEAR(half["iterations"][0]["change"], -0.5, 0.05);  // copies and pauses stay
  }
}

}  // namespace timeline_test
}  // namespace perfmodel::test_support
