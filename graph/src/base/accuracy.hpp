#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "perfmodel/result.hpp"

/// How far predictions are from measurements. All errors are relative and without a unit: with
/// e = predicted / measured - 1, e = 0.1 is 10 % too slow. Measured and predicted times share any
/// unit.
namespace perfmodel {

/// Added to |e| in the geometric mean, so that one exact prediction does not make it zero.
inline constexpr double kGeomeanOffset = 4e-4;

struct ErrorSummary {
  std::size_t rows = 0;
  double mape = 0;         ///< mean |e|
  double median_ape = 0;   ///< median |e|
  double geomean_ape = 0;  ///< exp(mean ln(|e| + kGeomeanOffset)): the GMAE of Lin et al. 2022
  double bias = 0;         ///< mean e: above 0 where predictions are too slow
  double p90 = 0;          ///< 90 % of the rows have |e| up to this
};

/// Errors: no rows, lengths that differ, a measured time that is not above 0, a predicted time that
/// is not finite, a ratio beyond the range of double.
Result<ErrorSummary> summarize_errors(std::span<const double> measured,
                                      std::span<const double> predicted);

/// The same; zeros where there is none.
inline ErrorSummary summary_of(std::span<const double> measured,
                               std::span<const double> predicted) {
  return summarize_errors(measured, predicted).value_or(ErrorSummary{});
}

/// The same for the rows of each key; without rows an empty map.
Result<std::map<std::int64_t, ErrorSummary>> summarize_errors_by(std::span<const std::int64_t> keys,
                                                                 std::span<const double> measured,
                                                                 std::span<const double> predicted);

/// The baseline that any learned transfer to a device left out must beat: it takes the times `x` of
/// another device (or of an analytical model) times one constant. Returns the constant
///
///   c = argmin mean_i |c x_i - m_i| / m_i
///
/// As |c x - m| / m = (x / m) |c - m / x|, c is the median of m / x with weights x / m: the first
/// ratio, in ascending order, at which the weights up to it make half of their sum. (Plain medians
/// and least squares minimise something else; small ratios weigh more, as too slow costs more than
/// too fast.) Fitted on the rows it is judged on, it is a bound that no constant beats.
///
/// Errors: no rows, lengths that differ, times that are not finite and above 0.
Result<double> best_constant_ratio(std::span<const double> x, std::span<const double> measured);

}  // namespace perfmodel
