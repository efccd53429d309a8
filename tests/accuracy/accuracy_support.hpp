#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/call_waits.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/learned_models.hpp"

namespace perfmodel::accuracy {

/// Folder of the measured public data, or nothing where it is not at hand.
inline std::optional<std::filesystem::path> public_data() {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!folder || !std::filesystem::exists(folder)) return {};
  return std::filesystem::path(folder);
}

/// A graph and a trace of the same run.
struct RecordedRun {
  ExecutionGraph graph;
  Trace trace;
};

inline RecordedRun read_run(const std::string& graph, const std::string& trace) {
  const auto folder = *public_data() / "traces";
  return {read_execution_graph(folder / (graph + ".json.gz")).value(),
          read_trace(folder / (trace + ".json.gz")).value()};
}

inline Gpu gpu(const std::string& name) {
  return find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
}

/// The shipped kernel models.
inline const KernelModels& learned_models() {
  static const LearnedModels models =
      LearnedModels::open(std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "models").value();
  return models.models();
}

/// Measured figures of one iteration, in microseconds.
struct Truth {
  double wall_us = 0, gpu_active_us = 0, compute_us = 0, kernel_sum_us = 0, loader_us = 0;
};

inline Truth truth_of(const Trace& trace, std::size_t iteration) {
  const auto steps = iterations(trace);
  const auto of_work = gpu_iterations(trace, steps);
  Truth truth;
  truth.wall_us = static_cast<double>(steps[iteration].end_ns - steps[iteration].begin_ns) / 1e3;
  std::vector<std::pair<std::int64_t, std::int64_t>> busy;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (of_work[i] != static_cast<std::int32_t>(iteration)) continue;
    const GpuEvent& task = trace.gpu[i];
    const double us = static_cast<double>(task.duration_ns) / 1e3;
    busy.emplace_back(task.start_ns, task.end_ns());
    truth.kernel_sum_us += us;
    if (task.kind != GpuKind::kKernel || !is_collective_kernel(trace.name(task))) {
      truth.compute_us += us;
    }
  }
  truth.gpu_active_us = static_cast<double>(union_length(busy)) / 1e3;
  for (const HostEvent& event : trace.host) {
    if (trace.name(event).starts_with("enumerate(DataLoader)") &&
        event.start_ns >= steps[iteration].begin_ns && event.start_ns < steps[iteration].end_ns) {
      truth.loader_us += static_cast<double>(event.duration_ns) / 1e3;
    }
  }
  return truth;
}

/// Signed error in percent.
inline double error_percent(double predicted, double measured) {
  return 100 * (predicted / measured - 1);
}

/// Whether a measured step is within the predicted range; prints it.
inline bool holds(const Prediction& prediction, double measured_us) {
  const bool inside = measured_us >= prediction.e2e_low_us && measured_us <= prediction.e2e_high_us;
  std::printf("  range %.0f to %.0f us (%+.1f to %+.1f %%), measured %.0f: %s\n",
              prediction.e2e_low_us, prediction.e2e_high_us,
              error_percent(prediction.e2e_low_us, prediction.e2e_us),
              error_percent(prediction.e2e_high_us, prediction.e2e_us), measured_us,
              inside ? "inside" : "OUTSIDE");
  return inside;
}

/// Launches that each top-level op of a linked run really made, in the order of `top_level_ops`;
/// ops that the trace does not hold are left out of both vectors.
struct LaunchComparison {
  std::size_t ops = 0, right = 0, launching = 0, launching_right = 0;
  double percent() const { return 100.0 * static_cast<double>(right) / static_cast<double>(ops); }
};

inline LaunchComparison compare_launches(const RecordedRun& run, const Gpu& gpu,
                                         const LaunchTemplates& templates, TemplateUse use) {
  const auto predicted = predicted_launches(run.graph, gpu, &templates, use);
  const auto top = top_level_ops(run.graph);
  const GraphLink linked = link(run.graph, run.trace).value();
  const GraphOccurrence& occurrence = linked.occurrences.front();
  LaunchComparison result;
  for (std::size_t i = 0; i < top.size(); ++i) {
    const std::int32_t event = occurrence.event_of_node[static_cast<std::size_t>(top[i])];
    if (event < 0) continue;
    const HostEvent& op = run.trace.host[static_cast<std::size_t>(event)];
    std::size_t truth = 0;
    for (std::size_t k = static_cast<std::size_t>(event); k < run.trace.host.size(); ++k) {
      const HostEvent& call = run.trace.host[k];
      if (call.thread != op.thread || call.start_ns > op.end_ns()) break;
      truth += call.kind == HostKind::kCall && call.end_ns() <= op.end_ns() &&
               is_launch_call(run.trace.name(call));
    }
    ++result.ops;
    result.right += predicted[i] == truth;
    if (truth > 0) {
      ++result.launching;
      result.launching_right += predicted[i] == truth;
    }
  }
  return result;
}

}  // namespace perfmodel::accuracy
