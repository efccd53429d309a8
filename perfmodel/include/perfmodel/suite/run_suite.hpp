#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/suite/detail/memory_purpose.hpp"
#include "perfmodel/suite/detail/suite.hpp"

namespace perfmodel::suite {

/// One model with one batch size. Times are for one iteration, all its graphs together.
struct SuiteRow {
  std::int64_t batch = 0;
  double step_us = 0, low_us = 0, high_us = 0;
  double throughput = 0;  ///< units per second
  double throughput_low = 0, throughput_high = 0;
  double gpu_active_us = 0, cpu_us = 0;
  double gpu_utilization = 0;  ///< gpu_active / step
  /// FLOP of all kernels in fp32 over what the fp32 peak of the GPU would do in `gpu_active`; the
  /// same of matrix units, each kernel at the peak of its type. By counted FLOP, where TBD reads
  /// counters of the pipes.
  double fp32_utilization = 0, matrix_utilization = 0;
  double cpu_utilization = 0;         ///< time that the host works / step, of one core
  std::vector<MemoryPurpose> memory;  ///< each at its own peak
  double needed_bytes = 0;            ///< all graphs, at the common peak of the largest
  double modelled_time_fraction = 1;
  std::size_t kernels_out_of_range = 0;
  std::vector<std::string> warnings;  ///< its own; warnings of all rows are not repeated
};

struct SuiteModelReport {
  SuiteModel model;
  std::int64_t parameters = 0;  ///< in all graphs together
  std::vector<SuiteRow> rows;   ///< by batch

  bool uses_matrix_units() const;  ///< in any row
  const SuiteRow& best() const;    ///< the row with the most units per second
  /// The smallest batch that reaches this share of the best throughput.
  const SuiteRow& first_to_reach(double share) const;
};

struct SuiteReport {
  Suite suite;
  Gpu gpu;
  double fp32_peak_flop_per_s = 0;
  std::vector<SuiteModelReport> models;
  std::vector<std::string> unmodelled_ops;
  std::vector<std::string> warnings;  ///< shared by all rows
  std::size_t row_count() const;
};

struct SuiteOptions {
  std::string gpu = {};                    ///< empty: the suite's
  std::vector<std::string> models = {};    ///< names; empty: all
  std::vector<std::int64_t> batches = {};  ///< instead of the models' own
  std::filesystem::path data = {};         ///< these three: see PredictorConfig
  std::string kernel_models = "learned";
  std::filesystem::path overheads = {};
  double host_scale = 1;
  std::size_t threads = 0;  ///< 0: as many as the machine runs at once
  /// Called after each row with the number of rows so far, by one thread at a time.
  std::function<void(std::size_t done, std::size_t of)> progress = {};
};

/// Builds and predicts all models with all batches. `build`: see `GraphToolbox::build`. Errors: an
/// unknown GPU or model; a model that cannot be built (with its place in the suite); as for
/// `predict`.
Result<SuiteReport> run_suite(
    const Suite& suite,
    const std::function<Result<ExecutionGraph>(const sweep::GraphSource&)>& build,
    const SuiteOptions& options = {});

}  // namespace perfmodel::suite
