#pragma once

// Programs of data/measurements whose steps were timed without a profiler and traced with one.
#include <fmt/format.h>

#include "measured_board.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel::unprofiled {

using accuracy::learned_models;
using measured_board::folder_of;

inline const std::filesystem::path kData = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
inline const std::string kH100 = "h100-sxm-80gb", kH200 = "h200-sxm-141gb";

/// A program on a board. A host-bound program keeps the GPU busy for less than 0.8 of the step.
struct Point {
  std::string gpu, key, workload, split;
  int tier = 0;  ///< in the campaign; 4 came when the reference host was learned
  bool compiled = false;
  bool tf32 = false;
  double wall_us = 0, active_us = 0;
  std::filesystem::path graph, trace;  ///< empty: none
  bool host_bound() const { return active_us < 0.8 * wall_us; }
};

inline std::vector<Point> points_of(const std::string& gpu) {
  const auto index = nlohmann::json::parse(std::ifstream(folder_of(gpu) / "index.json"));
  std::vector<Point> points;
  for (const auto& at : index["points"]) {
    if (!at.contains("trace")) continue;
    double active = 0;
    for (const auto& us : at["trace"]["gpu_active_us"]) active += us.get<double>();
    Point point{.gpu = gpu,
                .key = at["key"],
                .workload = at["workload"],
                .split = at["split"],
                .tier = at["tier"],
                .compiled = at["settings"].contains("compile"),
                .tf32 = at["precision"]["matmul_tf32"],
                .wall_us = at["times"]["free"]["wall_us"],
                .active_us = active / static_cast<double>(at["trace"]["gpu_active_us"].size()),
                .graph = {},
                .trace = {}};
    for (const std::string& board : {gpu, kH200}) {
      const auto graph = folder_of(board) / (point.key + ".et.json.gz");
      if (point.graph.empty() && std::filesystem::exists(graph)) point.graph = graph;
    }
    if (at["files"].contains("kineto")) {
      point.trace = folder_of(gpu) / (point.key + ".kineto.json.gz");
    }
    points.push_back(std::move(point));
  }
  return points;
}

inline std::vector<Point> all_points() {
  std::vector<Point> points = points_of(kH100);
  std::ranges::move(points_of(kH200), std::back_inserter(points));
  return points;
}

/// Absolute errors in percent, of all steps and of host-bound ones.
struct Errors {
  std::vector<double> all, host_bound, gpu_bound;
  void add(const Point& point, double predicted_us) {
    const double error = 100 * std::abs(predicted_us / point.wall_us - 1);
    all.push_back(error);
    (point.host_bound() ? host_bound : gpu_bound).push_back(error);
  }
  static double mean(const std::vector<double>& errors) {
    double sum = 0;
    for (double error : errors) sum += error;
    return errors.empty() ? 0 : sum / static_cast<double>(errors.size());
  }
  std::string text() const {
    return fmt::format("{:.1f} % of {} (host-bound {:.1f} of {}, GPU-bound {:.1f})", mean(all),
                       all.size(), mean(host_bound), host_bound.size(), mean(gpu_bound));
  }
};

inline Prediction step_of(const ExecutionGraph& graph, const std::string& gpu,
                          const OverheadTable& table) {
  return predict(graph, accuracy::gpu(gpu), table,
                 {.models = &learned_models(), .keep_ops = false, .step_range = false})
      .value();
}

inline ExecutionGraph graph_of(const Point& point) {
  ExecutionGraph graph = read_execution_graph(point.graph).value();
  graph.allow_tf32 |= point.tf32;
  return graph;
}

// "dlrm-mix26-bags.bf16" and "dlrm-mix100-batched" are one family.
inline std::string family_of(const std::string& workload) {
  for (const char* family : {"dlrm-mix", "bert", "gpt2", "lstm", "resnet50"}) {
    if (workload.starts_with(family)) return family;
  }
  return workload.substr(0, workload.find('.'));
}

}  // namespace perfmodel::unprofiled
