#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "explain/step_work.hpp"
#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/detail/match_step.hpp"
#include "perfmodel/detail/trace_comparison.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/prediction.hpp"
#include "sync/mixed_job.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// Of one of the kinds of ranks in a job whose ranks differ.
struct MixedRankFacts {
  std::string gpu;         ///< its name
  std::int64_t count = 1;  ///< ranks of this kind
  double slowdown = 1;
  double link_gb_per_s = 0;  ///< 0: that of the topology
};

/// The prediction of one graph and where its numbers come from. File names, no folders.
struct RankPrediction {
  std::string graph_file;
  ExecutionGraph graph;  ///< the prediction points into its names
  std::string overheads_file;
  OverheadMethod overheads_method = OverheadMethod::kContext;
  std::string overheads_gpu;  ///< as the table names it
  std::vector<std::string> overheads_sources;
  std::vector<OverheadProgram> overheads_programs;
  double host_scale = 1;
  bool without_collector = false;     ///< the host's times lack what recording added to them
  std::optional<double> recorded_us;  ///< of a trace: its steps as they were recorded
  struct Measured {
    double us = 0;
    StepScales scales;  ///< that make the predicted step as long
  };
  std::optional<Measured> measured;  ///< what the user measured
  std::string kernel_times_file;     ///< empty: none
  Prediction prediction;
  std::string against_file;  ///< trace that the prediction is compared with; empty: none
  std::optional<TraceComparison> against = {};
  std::optional<MixedRankFacts> mixed = {};
};

/// What `predict` prints, as a table or as JSON. The breakdown is that of the slowest graph.
struct PredictionReport {
  Gpu gpu;
  std::string models;                             ///< "heuristic"
  std::vector<std::string> model_files;           ///< read for it, in data/models
  KernelTimes::Use use = KernelTimes::Use::kAll;  ///< if there are kernel times
  std::vector<RankPrediction> ranks;              ///< one per graph, in order
  std::deque<ExecutionGraph> mixed_graphs;        ///< of unlike ranks: their ops' names are these
  std::optional<JobReport> job;                   ///< with several ranks
  StepWork work;                                  ///< of the slowest graph
  std::optional<sync::DrawnSteps> drawn;          ///< with stragglers
  std::vector<ChakraTrace> chakra;                ///< if asked for
  std::vector<std::string> warnings;

  std::size_t slowest() const;
  double mean_e2e_us() const;
  std::optional<double> tokens_per_s() const;  ///< of the whole job, as samples per second
  std::optional<double> tflop_per_s() const;   ///< of one GPU
  std::optional<double> mfu() const;           ///< tflop_per_s() over the peak of `work`
  std::string mfu_warning() const;             ///< why `mfu` is above 1; empty: it is not
};

/// "mlperf.json (built)".
std::string graph_title(const RankPrediction& rank);

/// "rank 3", or "2 x a100-sxm-80gb, half the pace".
std::string rank_title(const PredictionReport& report, std::size_t rank);

/// "mean 21.3 ms, 95 % of 1000 draws within 25.1 ms"; empty without stragglers.
std::string drawn_text(const PredictionReport& report);

Json prediction_json(const PredictionReport& report);
Json memory_json(const PredictedMemory& memory);

/// What fits on a screen of 40 lines: warnings, the step, what limits it, and the first rows of the
/// tables. `top`: as many rows instead, however long that gets.
std::string short_prediction_text(const PredictionReport& report, std::optional<std::size_t> top,
                                  bool bold);

/// Everything, with at most `top` rows of the long tables.
std::string full_prediction_text(const PredictionReport& report, std::size_t top, bool bold);

/// Kernels of one family in one iteration.
struct FamilyTotal {
  KernelFamily family = KernelFamily::kSmall;
  double count = 0, time_us = 0, low_us = 0, high_us = 0;
  Bound bound = Bound::kLatency;  ///< of most of the time
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

/// Shares of the priced kernel time by what its models were measured on, nearest first; empty where
/// no kernel was priced.
std::string basis_of_prices(const Prediction::Coverage& coverage);

}  // namespace perfmodel::cli
