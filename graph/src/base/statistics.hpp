#pragma once

#include <span>
#include <vector>

namespace perfmodel {

/// The middle value, or the mean of the two in the middle; 0 of none.
double median_of(std::vector<double> values);

/// 0 of none.
double mean_of(std::span<const double> values);

/// How to choose a quantile that falls between two values: a value in between, or the lower one.
enum class QuantileRule { kInterpolated, kLower };

/// Quantile of ascending values: of n values, value i (0-based) is the quantile i / (n - 1). There
/// must be at least one; 0 <= share <= 1. Between equal neighbours it is exactly their value.
double quantile(std::span<const double> ascending, double share,
                QuantileRule rule = QuantileRule::kInterpolated);

}  // namespace perfmodel
