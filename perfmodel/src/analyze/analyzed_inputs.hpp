#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/findings.hpp"
#include "whatif/target_inputs.hpp"

namespace perfmodel {

/// Inputs of `analyze` and `report`: recordings as they are, or programs to be predicted.
struct AnalyzeQuestion {
  std::vector<std::string> files;
  TargetQuestion target;
  std::optional<std::pair<std::size_t, std::size_t>> iterations;  ///< in traces, [first, last)
};

/// Either traces, or one target per graph (rank).
struct AnalyzedInputs {
  bool recorded = false;
  std::vector<std::unique_ptr<TargetInputs>> ranks;
  std::vector<Trace> traces;
  std::optional<Gpu> gpu;  ///< empty: a recording on an unknown GPU
  std::vector<std::string> warnings;

  const Gpu* known_gpu() const { return gpu ? &*gpu : nullptr; }
  std::vector<RankInput> rank_inputs() const;
  /// Names the GPU in a report.
  std::string gpu_title() const;
  /// The findings of `analyze`, with its errors.
  Result<Findings> find(const AnalyzeOptions& options) const;
  /// Whether all models that prices took could be read. Ask after pricing.
  Result<void> check_models() const;
};

/// A trace is judged as recorded, on the GPU that it names, or on the question's if it names none.
/// If the question's GPU is another, the trace counts as a graph. Graphs need a GPU. `programs`
/// were read from the question's files. Fails on files of both kinds, on a graph without a GPU and
/// if `load_target` fails.
Result<AnalyzedInputs> load_analyzed(const AnalyzeQuestion& question,
                                     std::vector<RecordedProgram> programs);

/// The same of traces. Makes graphs of them only to predict them.
Result<AnalyzedInputs> load_analyzed(const AnalyzeQuestion& question, std::vector<Trace> traces);

}  // namespace perfmodel
