#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "explain/step_work.hpp"
#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/detail/match_step.hpp"
#include "perfmodel/detail/trace_comparison.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/prediction.hpp"
#include "predict/mixed_job.hpp"

namespace perfmodel {

/// Ranks that are alike in a job whose ranks differ.
struct KindOfRanks {
  std::string gpu;
  std::int64_t count = 1;
  double slowdown = 1, link_gb_per_s = 0;  ///< link 0: as the topology has it
  double host_scale = 1;
  std::size_t graph = 0;  ///< its place in the question
  bool operator==(const KindOfRanks&) const = default;
};

/// The prediction of one graph and the sources of its numbers. File names, no folders.
struct RankPrediction {
  std::string graph_file;
  ExecutionGraph graph;  ///< the prediction points into its names
  std::string overheads_file;
  OverheadMethod overheads_method = OverheadMethod::kContext;
  std::string overheads_gpu;  ///< as the table names it
  std::vector<std::string> overheads_sources;
  std::vector<OverheadProgram> overheads_programs;
  double host_scale = 1;
  bool without_collector = false;     ///< the host's times lack the additions of recording
  std::optional<double> recorded_us;  ///< recorded length of a trace's steps
  struct Measured {
    double us = 0;
    StepScales scales;  ///< they make the predicted step as long
  };
  std::optional<Measured> measured;  ///< given by the user
  std::string kernel_times_file;     ///< empty: none
  Prediction prediction;
  std::string against_file;  ///< trace that the prediction is compared with; empty: none
  std::optional<TraceComparison> against = {};
  std::optional<KindOfRanks> mixed = {};
};

/// The prediction of a job's step, its warnings and the sources of its numbers.
struct PredictionReport {
  Gpu gpu;
  std::string models;                             ///< "heuristic"
  std::vector<std::string> model_files;           ///< read for it, in data/models
  KernelTimes::Use use = KernelTimes::Use::kAll;  ///< if there are kernel times
  std::vector<std::string> rewrites;              ///< applied to each graph before its prediction
  std::vector<RankPrediction> ranks;              ///< one per graph, in order
  std::deque<ExecutionGraph> mixed_graphs;        ///< unlike ranks: names of ops point into them
  std::optional<JobReport> job;                   ///< with several ranks
  StepWork work;                                  ///< work of the slowest graph
  std::optional<sync::DrawnSteps> drawn;          ///< with stragglers
  std::vector<ChakraTrace> chakra;                ///< if asked for
  ChakraJobOptions chakra_groups;                 ///< groups of the stages of a pipeline
  std::vector<std::string> warnings;

  std::size_t slowest() const;
  double mean_e2e_us() const;
  std::optional<double> tokens_per_s() const;  ///< whole job, as samples per second
  std::optional<double> tflop_per_s() const;   ///< one GPU
  std::optional<double> mfu() const;           ///< tflop_per_s() over the peak of `work`
  std::string mfu_warning() const;             ///< why `mfu` is above 1; empty: it is not
};

/// Kernels of one family in one iteration.
struct FamilyTotal {
  KernelFamily family = KernelFamily::kSmall;
  double count = 0, time_us = 0, low_us = 0, high_us = 0;
  Bound bound = Bound::kLatency;  ///< bound of most of the time
  std::string_view model;         ///< the same
  std::size_t out_of_range = 0, inferred = 0;
};
std::vector<FamilyTotal> totals_by_family(const Prediction& prediction);  ///< longest first

/// Low and high of all kernels together in one iteration [us] (`SummedRange`).
std::pair<double, double> range_of_kernels(const Prediction& prediction);

/// Top-level ops of one name in one iteration.
struct OpTotal {
  std::string_view name;
  double count = 0, host_us = 0, wait_us = 0, device_us = 0;
};
std::vector<OpTotal> totals_by_op(const Prediction& prediction);  ///< most host and wait time first
OpTotal sum_of(std::span<const OpTotal> totals);                  ///< without a name

}  // namespace perfmodel
