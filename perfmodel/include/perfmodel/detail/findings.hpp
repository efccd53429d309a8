#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

/// Problems of a training step, found by rules (docs/analyze.md).
namespace perfmodel {

enum class Confidence : std::uint8_t {
  kLow,     ///< the repair rests on something that the input does not tell
  kMedium,  ///< found, but the gain is a bound or the repair has conditions
  kHigh,
};
std::string_view to_string(Confidence confidence);  ///< "low", "medium", "high"

/// One fault, its place, and the time that the step gains if it is repaired.
struct Finding {
  std::string_view rule;  ///< "low-parallelism"
  std::string title;      ///< a sentence with the figures that it rests on
  std::string where;      ///< call path: "ProfilerStep / aten::linear / aten::addmm"
  double share = 0;       ///< share of the step of the problem's own work
  /// The step minus the step scheduled again with the repair; nothing: it costs no time (memory).
  std::optional<double> gain_us = {};
  double gain_share = 0;  ///< gain as a share of the step
  Confidence confidence = Confidence::kMedium;
  std::string advice;   ///< the repair
  bool folded = false;  ///< gains less than 2 % of the step
};

struct Findings {
  /// Scheduled from its own durations, the base of all gains. A trace's step goes from its begin
  /// until host and device have finished it; several steps count as their mean.
  double step_us = 0;
  std::optional<double> measured_us = {};  ///< the same as the trace recorded it
  std::vector<Finding> findings;           ///< by falling gain; those that cost no time first
  std::vector<std::string> warnings;
};

struct AnalyzeOptions {
  std::vector<std::string> rules = {};  ///< names of `analyze_rules()`; empty: all
  std::optional<std::pair<std::size_t, std::size_t>> iterations = {};  ///< [first, last) of a trace
};

struct AnalyzeRule {
  std::string_view name, fires;  ///< "small-kernels", "8 pointwise kernels in a row ..."
};
/// All rules in the order of documents.
std::span<const AnalyzeRule> analyze_rules();

/// Analyses one trace, or the traces of the ranks of one job (with findings about the first rank
/// and the job). `gpu` recorded the trace; null: not known, and no rule uses rooflines. Errors: an
/// unknown rule, no ops, fewer iterations than asked for, for several ranks as for `replay`.
Result<Findings> analyze(std::span<const Trace> ranks, const Gpu* gpu,
                         const AnalyzeOptions& options = {});

/// Analyses one predicted step (the first rank's). Errors: an unknown rule, a table of method lin,
/// as for `predict`.
Result<Findings> analyze(std::span<const RankInput> ranks, const Gpu& gpu,
                         const AnalyzeOptions& options = {});

}  // namespace perfmodel
