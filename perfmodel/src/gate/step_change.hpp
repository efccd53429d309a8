#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace perfmodel {

enum class GateVerdict : std::uint8_t { kPass, kSlower, kCannotTell };
/// "pass", "slower", "cannot tell"
std::string_view to_string(GateVerdict verdict);

struct GateLimits {
  double threshold = 0.03;   ///< share by which steps may become slower
  double confidence = 0.99;  ///< that each one-sided bound holds
};

/// The steps of one run in their order [us].
struct StepSample {
  std::vector<double> us;
  double resolution_us = 0;  ///< last digit printed
};

/// The change between two runs, judged by the noise of their own steps.
struct StepChange {
  std::size_t steps_before = 0, steps_after = 0;
  double before_us = 0, after_us = 0;          ///< typical step
  double change = 0;                           ///< share; above 0: slower
  std::optional<double> low, high;             ///< bounds of `change`; none: too few steps
  double beyond_before = 0, beyond_after = 0;  ///< share of the time that outliers add
  GateVerdict verdict = GateVerdict::kCannotTell;
  /// Steps of each run with which a change of half the threshold could be told from none and from
  /// the threshold; none: the times are printed too coarsely for any number.
  std::optional<std::size_t> steps_needed;
};

inline constexpr std::size_t kFewestSteps = 10;

/// Compares the means of log step times, each time clipped at four standard deviations from its
/// run's median; of the two runs' deviations (by medians of absolute deviations) the larger counts.
///
/// The variance of a mean comes from the spread of single steps, or from the first
/// nu = 0.75 n^(2/3) cosine terms of the run if these say more: then steps depend on those before
/// (equal weights; Lazarus, Lewis, Stock, Watson, "HAR inference", 2018). If the first three terms
/// are four times as strong as steps without order allow, the run drifts, and they alone count.
/// Bounds are Student's t with the degrees of freedom of Welch and Satterthwaite, wider by half a
/// digit if noise does not hide the rounding.
///
/// pass: the upper bound is below the threshold. slower: it is not, and the lower bound is above 0.
/// cannot tell: neither, or a run has fewer than `kFewestSteps` steps. All times must be above 0.
StepChange judge_steps(const StepSample& before, const StepSample& after, const GateLimits& limits);

/// The value that a variable of Student's t is below with probability `p` (0.5 < p < 1): below 10
/// degrees of freedom by the integral, else by the expansion of Cornish and Fisher, which is 0.1 %
/// off at p = 0.9999. At least one degree.
double student_quantile(double p, double degrees);

}  // namespace perfmodel
