#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fields/field.hpp"
#include "gate/step_change.hpp"
#include "gate/step_cost.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/result.hpp"
#include "step_log/step_log.hpp"

namespace perfmodel {

/// Did a change make the step slower? Two logs, two traces, or two programs to be predicted.
struct GateQuestion {
  std::string before, after;  ///< files
  std::string threshold = "3%";
  std::string confidence;               ///< measured steps need it; empty: 99 %
  std::string unit;                     ///< see StepLogOptions
  std::optional<double> work_per_step;  ///< the same
  std::vector<std::string> gpus;        ///< predict on these
  std::string overheads, models = "learned", topology;
};

using GateField = Field<GateQuestion, std::vector<std::string>>;
/// The flags, without the files, in the order of the help.
std::span<const GateField> gate_fields();

/// One of the two runs.
struct GateSide {
  std::string file;
  std::string left_out;  ///< steps that do not count, and why
};

/// The change on one GPU [us per step].
struct GateOnGpu {
  std::string gpu;
  double before_us = 0, after_us = 0;
  StepCost cost;
  GateVerdict verdict = GateVerdict::kCannotTell;

  double change_us() const { return after_us - before_us; }
  double change() const { return before_us > 0 ? after_us / before_us - 1 : 0; }
};

struct GateReport {
  std::string kind;  ///< "logs", "traces" or "predictions"
  GateSide before, after;
  GateLimits limits;
  std::optional<StepChange> steps;  ///< for logs and traces
  std::vector<GateOnGpu> gpus;      ///< one for traces: the recorded one
  /// Predictions: of the GPU that loses most. Cannot tell: the new program has ops without a model
  /// that the old one lacks.
  GateVerdict verdict = GateVerdict::kCannotTell;
  std::vector<std::string> warnings;
};

/// Errors of `read_step_log`; a threshold or confidence that is no percentage; GPUs or a topology.
Result<GateReport> gate_logs(const GateQuestion& question);

/// Compares two traces by their recorded steps, or with GPUs in the question two programs by their
/// predictions. `programs`: before and after. Errors: graphs without a GPU, a trace and a graph
/// without one; unknown names; what the prediction refuses; a unit or work per step.
Result<GateReport> gate_programs(const GateQuestion& question,
                                 std::vector<RecordedProgram> programs);

/// 0: pass, 3: slower, 4: cannot tell.
int exit_status(GateVerdict verdict);

/// "slower by 3.1 % (1.2 to 5.0 % at 99 %): above 3 %", of the whole report.
std::string verdict_sentence(const GateReport& report);
/// "58 of 411.692 ms, then 58 of 426.390 ms"; empty for predictions.
std::string steps_sentence(const GateReport& report);
/// "these cost +52.758 ms, all else +0.446 ms", below the table of reasons.
std::string sum_sentence(const GateOnGpu& one);
OrderedJson gate_json(const GateReport& report);
/// For the comment on a pull request or the summary of a CI job.
std::string gate_markdown(const GateReport& report);

extern const ResultFields<GateOnGpu> kGateOnGpuFields;

}  // namespace perfmodel
