#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"

/// The question and the answer of `optimize` (perfmodel/optimize.hpp).
namespace perfmodel {

/// The figure that the search minimises, in microseconds for as many samples as the given step has.
enum class AdviceObjective : std::uint8_t {
  kStep,              ///< the step; its samples stay
  kSamplesPerS,       ///< the whole job's; larger batches are allowed
  kSamplesPerGpuHour  ///< larger batches and fewer GPUs are allowed
};
std::string_view to_string(AdviceObjective objective);  ///< "step", ...
/// By its name. The error lists all names.
Result<AdviceObjective> advice_objective(std::string_view name);

/// Families of rewrites that a search may be kept to, in the order of documents: "precision", ...
const std::vector<std::string>& advice_families();

struct OptimizeOptions {
  /// Names of `advice_families()`; empty: all that the objective and the number of ranks leave.
  std::vector<std::string> allow = {};
  AdviceObjective objective = AdviceObjective::kStep;
  std::optional<double> memory_limit_bytes = {};  ///< per GPU; empty: the memory its driver shows
  /// Data-parallel ranks (DistributedDataParallel) that each run the graph; 1: the graph alone.
  std::int64_t world = 1;
  double time_budget_s = 60;
  std::size_t beam = 3;  ///< steps that each round of the search starts from
  /// How the commands of the answer name the graph, and the flags that predictions of it need.
  std::string graph_file = "GRAPH", predict_flags = {};
  /// The flags that name the GPU and the topology, for other commands.
  std::string machine_flags = {};
  std::string topology = {};  ///< for plans of tables; empty: the GPU's usual node
  std::stop_token cancel = {};
  /// Called after each prediction with their number so far.
  std::function<void(std::size_t evaluations)> progress = {};
};

/// One rewrite by itself.
struct AdvisedStep {
  std::string rewrite, family;  ///< "--precision bf16", "precision"
  std::string command;          ///< predicts the step with this rewrite
  std::string code;             ///< lines of PyTorch that do it
  double step_us = 0;
  std::optional<std::int64_t> batch;  ///< samples per step of one GPU
  double needed_bytes = 0;            ///< per GPU
  double gain_us = 0;                 ///< for the samples of the given step
  double gain_share = 0;              ///< share of the given step
  double error_us = 0;                ///< possible error of the gain
  bool within_error = false;          ///< the gain is no larger than that
  bool same_numbers = true;           ///< false: it changes what the program computes
};

/// One rewrite of the best combination.
struct CombinedStep {
  std::string rewrite, family, code;
  /// With it and those before it, for as many samples as the given step has; empty: it needs one
  /// that comes later.
  std::optional<double> then_us = {};
  /// Loss of the combination without this move, and without the moves that then refuse the graph.
  double adds_us = 0;
  bool others_need_it = false;  ///< there are such
  bool same_numbers = true;
  double adds_share = 0;  ///< share of the given step
  double error_us = 0;
  bool within_error = false;
};

/// A move that the user asked for and that does not help.
struct LostMove {
  enum class Why : std::uint8_t {
    kRefused,     ///< the rewrite or the prediction refuses the graph
    kLacksUnits,  ///< the GPU has no matrix units for the type
    kSlower,      ///< or just as fast
    kTooLarge,    ///< does not fit
    kCannotGain,  ///< was not predicted: what it touches is too little of the critical path
  };
  std::string rewrite, family;
  Why why = Why::kSlower;
  std::string reason;             ///< a sentence
  std::optional<double> step_us;  ///< if it was predicted
};
std::string_view to_string(LostMove::Why why);  ///< "refused", ...

/// One row of where the step could go at best.
struct CeilingRow {
  std::string what;       ///< "launches", "gemm", "all_reduce", ...
  double alone_us = 0;    ///< gain if this alone took no time
  double after_us = 0;    ///< the step if this and all rows above took no time
  double gain_us = 0;     ///< by this row, the rows above being free
  double gain_share = 0;  ///< the same, of the given step
};

struct Ceiling {
  double step_us = 0;
  std::vector<CeilingRow> rows;  ///< each gains most after the rows above
  double rest_us = 0;            ///< the step if all rows were free: latencies and gaps of streams
  /// The step if its whole critical path took no time, that is, the length of the second path.
  double without_path_us = 0;
};

/// A plan of the embedding tables, as by `shard` (docs/sharding.md): one batch of an eager step
/// with the dense layers that are understood.
struct TablePlanAdvice {
  double plan_us = 0;  ///< under the best plan found
  /// With every table on every rank and all-reduced gradients; empty: does not fit, or is not
  /// allowed.
  std::optional<double> replicated_us = {};
  std::string plan;  ///< "20 table_wise, 6 row_wise"
  std::string command, code;
};

/// The best parallel layout of the whole job, as by `layout` (docs/layout.md). This is another
/// model, so compare its times only with each other.
struct LayoutPlanAdvice {
  double step_us = 0;       ///< step of the fastest layout that fits
  double memory_bytes = 0;  ///< memory of its worst rank
  std::string layout;       ///< "dp 2, tp 4, micro batch 4, ZeRO 1"
  /// The job as it is: a whole model on every rank. Empty: it has no such price.
  std::optional<double> replicated_us = {};
  bool replicated_fits = false;
  std::string software, command;
};

struct Advice {
  double baseline_us = 0;  ///< the given step
  double best_us = 0;      ///< best combination, for as many samples as the given step has
  double best_step_us = 0;
  double same_numbers_us = 0;  ///< the best that the search saw without other numbers
  std::optional<std::int64_t> baseline_batch, best_batch;  ///< samples per step of one GPU
  std::int64_t baseline_ranks = 1, best_ranks = 1;
  double baseline_bytes = 0, best_bytes = 0, memory_limit_bytes = 0;  ///< per GPU
  AdviceObjective objective = AdviceObjective::kStep;
  std::string baseline_command, best_command;
  double best_error_us = 0;
  bool best_within_error = false;
  /// Single rewrites that gain, most first; one that changes numbers counts a fifth.
  std::vector<AdvisedStep> steps;
  std::vector<CombinedStep> combination;  ///< in the same order; empty: nothing helps
  std::vector<LostMove> lost;
  Ceiling ceiling;
  std::optional<TablePlanAdvice> table_plan = {};    ///< for several ranks with tables
  std::optional<LayoutPlanAdvice> layout_plan = {};  ///< for several ranks, if asked for
  std::size_t evaluations = 0;  ///< predictions of the search; the answer's errors take more
  double seconds = 0;
  bool complete = true;  ///< false: the time budget or the caller ended the search
  std::vector<std::string> warnings;
};

}  // namespace perfmodel
