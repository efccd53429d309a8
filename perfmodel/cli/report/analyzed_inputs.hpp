#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/anonymize.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/whatif/target_inputs.hpp"
#include "perfmodel/detail/findings.hpp"

namespace perfmodel::cli {

/// Inputs of `analyze` and `report`: recordings as they are, or programs to be predicted.
struct AnalyzedArguments {
  std::vector<std::string> files;
  TargetArguments target;
  Window iterations;
  ReadOptions reading;
  std::shared_ptr<Anonymizer> anonymizer = {};
};

/// Either traces, or one target per graph (ranks). What these point to lies behind them.
struct AnalyzedInputs {
  bool recorded = false;
  std::vector<std::unique_ptr<TargetInputs>> ranks;
  std::vector<Trace> traces;
  std::optional<Gpu> gpu;  ///< empty: a recording on a GPU that nobody knows
  std::vector<std::string> warnings;

  std::vector<RankInput> rank_inputs() const;
  /// Names the GPU in a report.
  std::string gpu_title() const;
};

/// "the GPU "X" is not among the known ones (see `gpus`)", and what X is if its name says so.
std::string unknown_gpu(std::string_view name);

/// A trace is judged as recorded, on the GPU that it names; on `--gpu` where it names none, or
/// another: then it stands in the place of a graph. Graphs need `--gpu`. Errors: files of both
/// kinds, a graph without `--gpu`, those of readers.
Result<AnalyzedInputs> load_analyzed(const AnalyzedArguments& arguments);

/// Flags of both commands.
void add_analyzed(CommandParser app, AnalyzedArguments& arguments);

}  // namespace perfmodel::cli
