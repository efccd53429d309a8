// LSTM training steps on an H100 with cuDNN 9.19, TF32 off (data/measurements), timed and traced
// there: default host, default models. Steps of the model were chosen on the points that are marked
// as `train`; those marked as `test` only judge.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "accuracy_support.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel {
namespace recurrent_hopper_test {

const std::filesystem::path kFolder =
    std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "measurements" / "h100-sxm-80gb";

struct Point {
  std::string key, split;
  double wall_us = 0, active_us = 0;
};

std::vector<Point> library_layers() {
  const auto index = nlohmann::json::parse(std::ifstream(kFolder / "index.json"));
  std::vector<Point> points;
  for (const auto& point : index["points"]) {
    const std::string key = point["key"];
    if (!key.starts_with("lstm-") || key.starts_with("lstm-cells-")) continue;
    double active = 0;
    for (const auto& us : point["trace"]["gpu_active_us"]) active += us.get<double>();
    points.push_back(
        {.key = key,
         .split = point["split"],
         .wall_us = point["times"]["free"]["wall_us"],
         .active_us = active / static_cast<double>(point["trace"]["gpu_active_us"].size())});
  }
  return points;
}

TEST(MeasuredOnH100, LibraryLayersByDefault) {
  const auto predictor =
      Predictor::load({.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data"});
  ASSERT_TRUE(predictor.has_value());
  std::map<std::string, int> seen;
  std::printf("%-18s %-5s  step ms measured predicted  GPU active ms measured predicted\n", "", "");
  for (const Point& point : library_layers()) {
    const auto graph = read_execution_graph(kFolder / (point.key + ".et.json.gz"));
    ASSERT_TRUE(graph.has_value()) << point.key;
    const auto ours = predictor->predict(*graph, "h100-sxm-80gb");
    ASSERT_TRUE(ours.has_value()) << point.key;
    const double step = ours->e2e_us / point.wall_us - 1;
    const double active = ours->gpu_active_us / point.active_us - 1;
    std::printf("%-18s %-5s  %8.3f %8.3f (%+4.0f %%)  %8.3f %8.3f (%+4.0f %%)\n", point.key.c_str(),
                point.split.c_str(), point.wall_us / 1e3, ours->e2e_us / 1e3, 100 * step,
                point.active_us / 1e3, ours->gpu_active_us / 1e3, 100 * active);
    EXPECT_LE(std::abs(active), 0.2) << point.key;
    EXPECT_LE(std::abs(step), 0.25) << point.key;
    ++seen[point.split];
  }
  EXPECT_EQ(seen["train"], 3);
  EXPECT_EQ(seen["test"], 3);
}

// Work of a layer's step is started by 2.5 calls of the host's forward, 3.9 backward. Prices of the
// libraries of 2016 include their host's time.
TEST(MeasuredOnH100, TheHostStartsTheKernelsOfSteps) {
  const auto predictor =
      Predictor::load({.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data"});
  ASSERT_TRUE(predictor.has_value());
  const auto graph = read_execution_graph(kFolder / "lstm-512x2-b32.et.json.gz");
  ASSERT_TRUE(graph.has_value());
  const auto calls_us = [&](const char* gpu) {
    return predictor->predict(*graph, gpu)->terms_us[static_cast<std::size_t>(Term::kT4)];
  };
  const auto host = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data/overheads/reference.json";
  const double launch_us = read_overheads(host)->call_us("cudaLaunchKernel").us;
  // Two layers of 35 steps, less the launch of each pass and layer that stood for them.
  EXPECT_NEAR((calls_us("h100-sxm-80gb") - calls_us("titan-x-maxwell")) / launch_us,
              2 * 35 * (2.5 + 3.9) - 4, 1e-6);
}

}  // namespace recurrent_hopper_test
}  // namespace perfmodel
