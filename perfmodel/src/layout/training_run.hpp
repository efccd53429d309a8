#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fields/field.hpp"
#include "fields/result_field.hpp"
#include "perfmodel/layout.hpp"

/// The needs of a whole run of training: steps, days, GPU hours, money, energy, checkpoints.
namespace perfmodel {

/// A question about a run, in words and numbers; empty or none: not asked.
struct TrainingRunAsk {
  std::string tokens;  ///< that are trained on: "15T"
  std::string samples;
  std::optional<double> epochs;
  std::string deadline;  ///< "30d"
  std::string usd_per_gpu_hour;
  std::optional<double> storage_gb_per_s, mtbf_hours_per_gpu, restart_s;
};

using TrainingRunField = Field<TrainingRunAsk>;
std::span<const TrainingRunField> training_run_fields();

struct TrainingRunQuestion {
  double tokens = 0;
  std::optional<double> deadline_s, usd_per_gpu_hour;
  double gpu_power_w = 0;          ///< that a board draws at most
  double storage_bytes_per_s = 0;  ///< for checkpoints, all ranks together; 0: none
  double gpu_failures_per_s = 0;   ///< on one GPU; 0: none
  double restart_s = 0;            ///< from a failure to the first step again
  bool is_asked() const { return tokens > 0; }
};

/// The price of an hour of a GPU [$]: the number that `text` is, or the one of the GPU's name in
/// the JSON file that it names. Errors: no number above 0, no such file, no price of this GPU.
Result<double> gpu_price(const std::string& text, const std::string& gpu);

/// `gpu`: by whose name a file has prices. Errors: no number, unit or price; tokens and samples; a
/// field without the one that it needs.
Result<TrainingRunQuestion> training_run_question(const TrainingRunAsk& ask, const LayoutJob& job,
                                                  const std::string& gpu, double gpu_power_w);

/// As the step's time has it.
struct TimeRange {
  double low = 0, expected = 0, high = 0;
};

/// Checkpoints of weights and optimizer's state in an interval that loses least, by Daly's model
/// (J. T. Daly, "A higher order estimate of the optimum checkpoint interval", 2006): failures come
/// at random, a checkpoint stalls the run, a failure costs the restart and the steps since.
struct CheckpointPlan {
  double bytes = 0, bytes_per_rank = 0;
  double stall_s = 0;
  std::optional<double> interval_s;  ///< between checkpoints; none: nothing fails
  double goodput = 1;                ///< share of the time that is training
};
CheckpointPlan checkpoint_plan(double bytes, std::int64_t gpus, const TrainingRunQuestion& run);

struct TrainingRun {
  double steps = 0;
  TimeRange days, gpu_hours, mwh;
  std::optional<TimeRange> usd;
  std::optional<CheckpointPlan> checkpoints;
  std::optional<double> deadline_days;
  bool meets_deadline() const { return !deadline_days || days.expected <= *deadline_days; }
};

/// A count of GPUs that was tried for a deadline.
struct DeadlineTry {
  std::int64_t gpus = 0;
  RankedLayout best;
  TrainingRun run;
};

TrainingRun training_run(const TrainingRunQuestion& question, const LayoutJob& job,
                         const RankedLayout& ranked);

OrderedJson training_run_json(const TrainingRun& run);

}  // namespace perfmodel
