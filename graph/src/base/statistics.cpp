#include "statistics.hpp"

#include <algorithm>
#include <cstddef>

#include "perfmodel/result.hpp"

namespace perfmodel {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double quantile(std::span<const double> ascending, double share, QuantileRule rule) {
  PERFMODEL_CHECK(!ascending.empty() && share >= 0 && share <= 1);
  const double position = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  if (rule == QuantileRule::kLower) return ascending[below];
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  const double rest = position - static_cast<double>(below);
  return ascending[below] + (ascending[above] - ascending[below]) * rest;
}

}  // namespace perfmodel
