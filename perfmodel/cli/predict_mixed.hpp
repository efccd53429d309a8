#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prediction_report.hpp"
#include "terminal/output.hpp"

namespace CLI {
class App;
}

namespace perfmodel::cli {

/// What `predict` is told of ranks that differ. Lists have one value, or one per rank.
struct MixedArguments {
  std::vector<double> host_scales, slowdowns, links_gb_per_s;
  std::string straggler;
  std::uint64_t seed = 0;
  std::size_t draws = 1000;

  bool given() const {
    return !host_scales.empty() || !slowdowns.empty() || !links_gb_per_s.empty() ||
           !straggler.empty();
  }
};

void add_mixed_flags(CLI::App& app, MixedArguments& arguments);

/// Beside these: what `predict` knows of every job.
struct MixedQuestion {
  std::vector<std::string> graphs;  ///< of one rank, or one per rank
  std::string gpus, overheads, topology, models;
  bool ddp = false;
  double bucket_mb = 0;  ///< 0: DDP's own
  double interference = 1, host_scale = 1;
  bool sustained = true, keep_calls = false, missing_collectives = false;
  Launching launching = Launching::kEager;
  std::size_t what_if_steps = 0;
  ReadOptions reading;
};

/// Alike ranks of one graph are one entry of the report, with their number. Errors: traces in the
/// place of graphs, lists of another length than the job has ranks, a graph of one rank without
/// collectives and without ddp; those of predict_mixed_job.
Result<PredictionReport> predict_mixed(const MixedArguments& mixed, const MixedQuestion& question);

}  // namespace perfmodel::cli
