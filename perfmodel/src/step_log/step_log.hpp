#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"

/// Step times as training programs print them.
namespace perfmodel {

/// One record of a log. Programs may print every few steps: `us` is the mean of these steps [us].
struct LoggedStep {
  std::int64_t step = 0;  ///< the last step of the record
  double us = 0;
};

/// Steps that do not say how long a step takes.
struct LeftOutSteps {
  std::string why;  ///< "warm-up", "after a checkpoint"
  std::vector<std::int64_t> steps;
};

struct StepLog {
  std::string source;             ///< file
  std::string program;            ///< "Megatron-LM", "one number a line"
  std::vector<LoggedStep> steps;  ///< in the order of the log, without those left out
  std::vector<LeftOutSteps> left_out;
  std::int64_t steps_per_record = 1;
  double resolution_us = 0;  ///< last digit printed of a typical step
  /// Tokens per GPU (torchtitan) or samples (DeepSpeed) of a step; none if the log shows no rates.
  std::optional<double> work_per_step;
  std::vector<std::string> warnings;

  double median_us() const;
};

struct StepLogOptions {
  std::string unit;  ///< for numbers without one: "us", "ms" or "s"
  /// As in StepLog, for logs that show rates without time stamps in milliseconds.
  std::optional<double> work_per_step;
};

/// Reads logs of Megatron-LM, nanotron, NeMo, DeepSpeed, torchtitan and the Trainer of Hugging Face
/// (its progress bar, or trainer_state.json), a CSV table with a column such as step_time_ms, or
/// one time a line.
///
/// Leaves out: warm-up (the first record of a run, and up to ten more while they are slower than
/// the rest), records after a checkpoint or an evaluation, skipped steps, other batch sizes, lines
/// of other ranks, a last line that is cut off. If nothing is left, or the log has fewer than three
/// records, the warnings say so.
///
/// Errors: a file that cannot be read; none of these formats; a number without a unit; a time that
/// is no positive number (with its line) or beyond 30 years; rates without work per step or time
/// stamps.
Result<StepLog> read_step_log(const std::filesystem::path& file,
                              const StepLogOptions& options = {});
/// The same of a text; `file` is for messages.
Result<StepLog> read_step_log_text(const std::string& text, const std::filesystem::path& file,
                                   const StepLogOptions& options = {});

/// Whether a file is text that may hold step times, not a graph or a trace in JSON or gzip.
bool is_step_log(const std::filesystem::path& file);

/// "step 10 (warm-up), 20 and 30 (after a checkpoint)"; empty: none was left out.
std::string left_out_text(const StepLog& log);

}  // namespace perfmodel
