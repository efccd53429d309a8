#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One question about a graph: the rewrites that make the variant, in order.
struct Variant {
  std::string name;
  std::vector<NamedRewrite> rewrites;  ///< empty: the graph as it is
  /// Number of first rewrites in common with the variant before; they are applied once.
  std::size_t shared = 0;
};

/// A GPU with the options to predict variants on it. Its table must outlive the call.
struct WhatIfTarget {
  Gpu gpu;
  const OverheadTable* overheads = nullptr;
  PredictOptions options = {};
};

/// The step of one variant on one target. Times in microseconds per step.
struct WhatIfAnswer {
  std::size_t variant = 0, target = 0;
  std::optional<Error> error;  ///< a rewrite or the prediction refused; nothing else holds then

  double e2e_us = 0, gpu_active_us = 0, cpu_us = 0;
  double e2e_low_us = 0, e2e_high_us = 0;  ///< see Prediction
  std::optional<double> energy_j;          ///< per GPU
  double exposed_communication_us = 0;
  std::optional<std::int64_t> batch;  ///< samples per step of one GPU, if the inputs tell
  std::int64_t ranks = 1;             ///< see Prediction
  PredictedMemory memory;

  /// "host" or a family of kernels, and its share of the step: see Explanation.
  std::string bound;
  double bound_share = 0;

  std::size_t ops = 0, kernels = 0;
  double modelled_time_fraction = 1;
  std::vector<std::string> unmodelled_ops;
  std::vector<std::string> lacking_units;  ///< see Prediction::Coverage
  /// Warnings that the rewrites added to the graph's.
  std::vector<std::string> rewrite_warnings;

  double gpu_utilization() const { return e2e_us > 0 ? gpu_active_us / e2e_us : 0; }
  std::optional<double> samples_per_s_per_gpu() const {
    return batch ? std::optional(static_cast<double>(*batch) * 1e6 / e2e_us) : std::nullopt;
  }
  /// Samples per second of the whole job.
  std::optional<double> samples_per_s() const {
    const auto one = samples_per_s_per_gpu();
    return one ? std::optional(*one * static_cast<double>(ranks)) : std::nullopt;
  }
};

struct WhatIfOptions {
  /// Each variant at the largest batch that fits into the target, instead of the graph's own
  /// (`largest_batch`). One sample that does not fit is an answer with that error.
  bool largest_batch = false;
  std::size_t threads = 0;  ///< 0: as many as the machine runs at once
  /// Called after each variant, by one thread at a time.
  std::function<void(std::size_t variants_done)> progress = {};
  /// A step that does not fit into its target is not priced: its answer has the memory of one rank
  /// alone. Targets that are scaled out, and all with `largest_batch`, are priced as always.
  bool only_fitting = false;
};

/// Predicts every variant of `graph` on every target. Answers come variant by variant, each on all
/// targets; they do not depend on the number of threads. A variant that cannot be made is an answer
/// with its error.
std::vector<WhatIfAnswer> what_if(const ExecutionGraph& graph, std::span<const Variant> variants,
                                  std::span<const WhatIfTarget> targets,
                                  const WhatIfOptions& options = {});

}  // namespace perfmodel
