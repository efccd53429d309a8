#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/anonymize.hpp"
#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/detail/match_step.hpp"
#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/detail/launching.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/rewrite.hpp"

namespace perfmodel {

/// Differences between the ranks of a job. Lists have one value, or one per rank.
struct UnlikeRanks {
  std::vector<double> host_scales, slowdowns, links_gb_per_s;
  std::string straggler;
  std::uint64_t seed = 0, draws = 1000;

  bool given() const {
    return !host_scales.empty() || !slowdowns.empty() || !links_gb_per_s.empty() ||
           !straggler.empty();
  }
};

/// A question about the step of a job. Lists of files have one entry, or one per graph.
struct PredictionQuestion {
  using Iterations = std::optional<std::pair<std::size_t, std::size_t>>;  ///< [first, last)

  std::vector<std::string> graphs;     ///< execution graphs or Kineto traces of ranks
  std::vector<NamedRewrite> rewrites;  ///< applied to each graph first
  std::vector<std::string> overheads, kernel_times;
  std::vector<std::string> against;  ///< traces that the prediction is compared with
  std::string gpu;                   ///< a name, a file, "NAME:COUNT,..." or one name per rank
  std::string models = "learned", topology;
  KernelTimes::Use use = KernelTimes::Use::kAll;
  std::int64_t world = 0;
  std::optional<ParallelStrategy> strategy;  ///< runs the graph of one rank on `world` ranks
  std::optional<double> bucket_mb, unit_mb;  ///< DDP [MiB], FSDP [MB]
  bool delay_allreduce = false;              ///< DDP: see DdpOptions::delayed
  std::int64_t stages = 1;                   ///< in the pipeline that a rank's graph is part of
  std::vector<double> stage_layers;          ///< see JobOptions
  double interference = 1, host_scale = 1;
  std::vector<double> rank_start_us;
  /// Iterations of the graphs or, without `kernel_iterations`, of the traces of `kernel_times`.
  Iterations iterations;
  Iterations kernel_iterations, against_iterations;
  Launching launching = Launching::kEager;
  TimedStep measured;
  UnlikeRanks unlike;
  bool missing_collectives = false, sustained = true, as_recorded = false;
  std::size_t what_if_steps = 10;                ///< see PredictOptions
  bool keep_calls = false, keep_chakra = false;  ///< see PredictOptions and JobOptions
  Anonymizer* anonymizer = nullptr;              ///< changes names in warnings

  bool names_several_gpus() const;
  bool has_unlike_ranks() const { return names_several_gpus() || unlike.given(); }
};

/// How the files of a question are read.
struct QuestionReaders {
  std::function<Result<std::vector<RecordedProgram>>(const std::vector<std::string>&)> programs;
  std::function<Result<Trace>(const std::string&)> trace;
};

}  // namespace perfmodel
