#pragma once

#include <cmath>
#include <vector>

#include "base/statistics.hpp"
#include "perfmodel/detail/overhead_table.hpp"

namespace perfmodel {

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
