#pragma once

// Boards measured by `kernels_bench` (data/measurements): single ops of a draw that no model was
// fitted to, next to a roofline with the best constant, and whole training steps, timed without a
// profiler, whose times no model has seen: default host, default models.
#include <zlib.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "accuracy_support.hpp"
#include "perfmodel/predictor.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel::measured_board {

inline std::filesystem::path folder_of(const std::string& gpu) {
  return std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "measurements" / gpu;
}

struct Errors {
  std::vector<double> ours, heuristic, roofline;  // price / measured
  double inside = 0;
  static double mean(const std::vector<double>& ratios) {
    double sum = 0;
    for (double ratio : ratios) sum += std::abs(ratio - 1);
    return 100 * sum / static_cast<double>(ratios.size());
  }
  /// With the constant that helps most: the median.
  double best_roofline() const {
    std::vector<double> sorted = roofline;
    std::ranges::sort(sorted);
    const double median = sorted[sorted.size() / 2];
    for (double& ratio : sorted) ratio /= median;
    return mean(sorted);
  }
};

/// The text of a gzip file.
inline std::string inflated(const std::filesystem::path& file) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), gzclose);
  std::string text;
  std::array<char, 4096> part;
  for (int size = 0; (size = gzread(in.get(), part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  return text;
}

/// Lines of a table, 1-based, with a text.
inline std::set<int> lines_with(const std::filesystem::path& file, std::string_view text) {
  std::set<int> lines;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> table(gzopen(file.c_str(), "rb"), gzclose);
  std::array<char, 4096> line;
  for (int number = 1; gzgets(table.get(), line.data(), line.size()); ++number) {
    if (std::string_view(line.data()).find(text) != std::string_view::npos) {
      lines.insert(number);
    }
  }
  return lines;
}

/// Rows of a table of ops by a name of each row's work; none where the name is empty.
inline std::map<std::string, Errors> judge(
    const std::filesystem::path& file,
    const std::function<std::string(const KernelWork&)>& group_of) {
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  const KernelTable table =
      read_kernel_table(file, {.gpu_folder = gpus, .needs_time = true}).value();
  // No query tells that images lie in another order than PyTorch makes them.
  const std::set<int> channels_last = lines_with(file, ",channels_last,");
  std::map<std::string, Errors> groups;
  for (const KernelRow& row : table.rows) {
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    const KernelWork work = for_gpu(row.work, gpu);
    std::string group = group_of(work);
    if (group.empty()) continue;
    // Models of these were fitted to images as PyTorch makes them.
    const bool knows_order =
        work.family == KernelFamily::kNorm ||
        (work.family == KernelFamily::kConvolution && size_in_bytes(work.dtype) == 2);
    if (knows_order && channels_last.contains(row.line)) group += " channels last";
    Errors& own = groups[group];
    const Price price = accuracy::learned_models().price(work, gpu);
    const double us = row.measured_us;
    own.ours.push_back(price.time.count() / us);
    own.heuristic.push_back(KernelModels::heuristic().price(work, gpu).time.count() / us);
    own.roofline.push_back(KernelModels::roofline().price(work, gpu).time.count() / us);
    own.inside += us >= price.low.count() && us <= price.high.count() ? 1 : 0;
  }
  return groups;
}

/// Families whose rows are what graphs lower to; lookups' backward passes are several kernels
/// there, and attention is PyTorch's own.
inline std::string family_and_type(const KernelWork& work) {
  switch (work.family) {
    case KernelFamily::kGemm:
    case KernelFamily::kConvolution:
    case KernelFamily::kElementwise:
    case KernelFamily::kReduction:
    case KernelFamily::kSoftmax:
    case KernelFamily::kNorm:
    case KernelFamily::kDropout: break;
    default: return {};
  }
  const bool tf32 = work.dtype == DType::kFloat32 && work.matrix_units;
  return std::string(to_string(work.family)) + " " +
         (tf32 ? "tf32" : std::string(to_string(work.dtype)));
}

/// `limits`: mean errors in percent, a tenth above those seen.
inline void expect_ops_of_another_draw(const std::string& gpu,
                                       const std::map<std::string, double>& limits) {
  const auto groups = judge(folder_of(gpu) / "ops_second_draw.csv.gz", family_and_type);
  EXPECT_EQ(groups.size(), limits.size());
  for (const auto& [name, errors] : groups) {
    const double ours = Errors::mean(errors.ours);
    std::printf(
        "%-36s %4zu rows: %5.1f %% (heuristic %5.1f, roofline x best constant %5.1f), "
        "%5.1f %% inside\n",
        name.c_str(), errors.ours.size(), ours, Errors::mean(errors.heuristic),
        errors.best_roofline(), 100 * errors.inside / static_cast<double>(errors.ours.size()));
    if (!limits.contains(name)) {
      ADD_FAILURE() << name;
      continue;
    }
    EXPECT_LE(ours, limits.at(name)) << name;
    if (!name.ends_with("channels last")) {
      EXPECT_LT(ours, errors.best_roofline()) << name;
    }
  }
}

struct Step {
  std::string key, split;
  std::filesystem::path graph;
  bool tf32 = false;
  double wall_us = 0, active_us = 0;
};

/// Points with a trace and an execution graph; `others`: a board whose graphs of the same programs
/// are used if this one kept none. Compiled programs are left out: their graphs lack Triton's
/// kernels.
inline std::vector<Step> traced_steps(const std::string& gpu, const std::string& others = {}) {
  const auto index = nlohmann::json::parse(std::ifstream(folder_of(gpu) / "index.json"));
  std::vector<Step> steps;
  for (const auto& point : index["points"]) {
    const std::string key = point["key"];
    auto graph = folder_of(gpu) / (key + ".et.json.gz");
    if (!point["files"].contains("et")) graph = folder_of(others) / (key + ".et.json.gz");
    const bool is_there = point["files"].contains("et") || !others.empty();
    if (!is_there || !std::filesystem::exists(graph) || !point.contains("trace")) continue;
    if (point["settings"].contains("compile")) continue;
    double active = 0;
    for (const auto& us : point["trace"]["gpu_active_us"]) active += us.get<double>();
    steps.push_back(
        {.key = key,
         .split = point["split"],
         .graph = graph,
         .tf32 = point["precision"]["matmul_tf32"],
         .wall_us = point["times"]["free"]["wall_us"],
         .active_us = active / static_cast<double>(point["trace"]["gpu_active_us"].size())});
  }
  return steps;
}

struct StepErrors {
  double step = 0, active = 0, median_active = 0, inside = 0;  ///< means but one; shares
  std::map<std::string, double> active_of;                     ///< by point, signed
};

/// Host: the reference, without a profiler. No option is set.
inline StepErrors predict_steps(const std::string& gpu, const std::vector<Step>& steps) {
  StepErrors errors;
  const auto predictor =
      Predictor::load({.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data"});
  if (!predictor) {
    ADD_FAILURE() << predictor.error().message;
    return errors;
  }
  std::vector<double> active_errors;
  std::printf("%-30s %-5s  step ms measured predicted  GPU active ms measured predicted\n", "", "");
  for (const Step& step : steps) {
    auto graph = read_execution_graph(step.graph);
    if (graph && step.tf32) graph->allow_tf32 = true;
    const auto ours = graph ? predictor->predict(*graph, gpu) : Unexpected{graph.error()};
    if (!ours) {
      ADD_FAILURE() << step.key << ": " << ours.error().message;
      continue;
    }
    const double active = ours->gpu_active_us / step.active_us - 1;
    std::printf("%-30s %-5s  %8.3f %8.3f (%+4.0f %%)  %8.3f %8.3f (%+4.0f %%)\n", step.key.c_str(),
                step.split.c_str(), step.wall_us / 1e3, ours->e2e_us / 1e3,
                100 * (ours->e2e_us / step.wall_us - 1), step.active_us / 1e3,
                ours->gpu_active_us / 1e3, 100 * active);
    errors.step += std::abs(ours->e2e_us / step.wall_us - 1);
    errors.active += std::abs(active);
    errors.active_of[step.key] = active;
    active_errors.push_back(std::abs(active));
    errors.inside += step.wall_us >= ours->e2e_low_us && step.wall_us <= ours->e2e_high_us ? 1 : 0;
  }
  const double count = static_cast<double>(active_errors.size());
  for (double* mean : {&errors.step, &errors.active, &errors.inside}) *mean /= count;
  std::ranges::sort(active_errors);
  errors.median_active = active_errors[active_errors.size() / 2];
  std::printf(
      "mean error: step %.1f %%, GPU active %.1f %% (median %.1f); %.0f %% of steps inside\n",
      100 * errors.step, 100 * errors.active, 100 * errors.median_active, 100 * errors.inside);
  return errors;
}

}  // namespace perfmodel::measured_board
