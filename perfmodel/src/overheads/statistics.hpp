#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "perfmodel/overheads.hpp"

namespace perfmodel {

inline double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

inline double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

/// Mean, population standard deviation, median and count.
inline OverheadStats stats_of(const std::vector<double>& values) {
  OverheadStats stats{.mean_us = mean_of(values), .count = values.size()};
  double squares = 0;
  for (double value : values) squares += (value - stats.mean_us) * (value - stats.mean_us);
  if (!values.empty()) stats.std_us = std::sqrt(squares / static_cast<double>(values.size()));
  stats.median_us = median_of(values);
  return stats;
}

}  // namespace perfmodel
