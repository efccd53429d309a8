#include "accuracy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "statistics.hpp"

namespace perfmodel {
namespace {

bool positive(double value) { return std::isfinite(value) && value > 0; }

std::optional<Error> length_error(std::size_t expected, std::size_t found) {
  if (expected == found) return std::nullopt;
  return Error{.code = ErrorCode::kImpossible,
               .message = fmt::format("expected as many values as measured times ({}), found {}",
                                      expected, found)};
}

Result<double> relative_error(std::size_t row, double measured, double predicted) {
  if (!positive(measured)) {
    return fail(ErrorCode::kImpossible,
                fmt::format("row {}: expected a measured time above 0, found {}", row, measured));
  }
  const double error = predicted / measured - 1;
  if (!std::isfinite(error)) {
    return fail(ErrorCode::kImpossible,
                fmt::format("row {}: expected a finite ratio of predicted and measured time, found "
                            "{} / {}",
                            row, predicted, measured));
  }
  return error;
}

/// `errors` holds at least one.
ErrorSummary summary_of(const std::vector<double>& errors) {
  const auto rows = static_cast<double>(errors.size());
  ErrorSummary summary{.rows = errors.size()};
  std::vector<double> sizes;
  sizes.reserve(errors.size());
  double log_sum = 0;
  for (double error : errors) {
    const double size = std::abs(error);
    sizes.push_back(size);
    summary.mape += size / rows;
    summary.bias += error / rows;
    log_sum += std::log(size + kGeomeanOffset);
  }
  summary.geomean_ape = std::exp(log_sum / rows);
  std::sort(sizes.begin(), sizes.end());
  summary.median_ape = median_of(sizes);
  summary.p90 = quantile(sizes, 0.9);
  return summary;
}

}  // namespace

Result<ErrorSummary> summarize_errors(std::span<const double> measured,
                                      std::span<const double> predicted) {
  if (measured.empty()) {
    return fail(ErrorCode::kImpossible, "expected at least one measured time, found none");
  }
  const std::vector<std::int64_t> keys(measured.size(), 0);
  auto groups = summarize_errors_by(keys, measured, predicted);
  if (!groups) return tl::make_unexpected(std::move(groups.error()));
  return groups->begin()->second;
}

Result<std::map<std::int64_t, ErrorSummary>> summarize_errors_by(
    std::span<const std::int64_t> keys, std::span<const double> measured,
    std::span<const double> predicted) {
  if (auto error = length_error(measured.size(), predicted.size())) return Unexpected(*error);
  if (auto error = length_error(measured.size(), keys.size())) return Unexpected(*error);
  std::map<std::int64_t, std::vector<double>> errors;
  for (std::size_t row = 0; row < measured.size(); ++row) {
    auto error = relative_error(row, measured[row], predicted[row]);
    if (!error) return tl::make_unexpected(std::move(error.error()));
    errors[keys[row]].push_back(*error);
  }
  std::map<std::int64_t, ErrorSummary> summaries;
  for (const auto& [key, list] : errors) summaries.emplace(key, summary_of(list));
  return summaries;
}

Result<double> best_constant_ratio(std::span<const double> x, std::span<const double> measured) {
  if (auto error = length_error(measured.size(), x.size())) return Unexpected(*error);
  if (measured.empty()) {
    return fail(ErrorCode::kImpossible, "expected at least one measured time, found none");
  }
  std::vector<double> ratios;
  ratios.reserve(x.size());
  double sum = 0;
  for (std::size_t row = 0; row < x.size(); ++row) {
    const double ratio = measured[row] / x[row];
    if (!positive(x[row]) || !positive(measured[row]) || !positive(ratio)) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("row {}: expected two times above 0 with a finite ratio, found {} "
                              "and {}",
                              row, x[row], measured[row]));
    }
    ratios.push_back(ratio);
  }
  std::sort(ratios.begin(), ratios.end());
  for (double ratio : ratios) sum += 1 / ratio;
  double weight = 0;
  for (double ratio : ratios) {
    weight += 1 / ratio;
    if (weight >= sum / 2) return ratio;
  }
  return ratios.back();
}

}  // namespace perfmodel
