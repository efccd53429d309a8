#pragma once

#include <cmath>

namespace perfmodel {

/// The value that a standard normal variable is below with probability `p`, by bisection of erfc.
inline double normal_quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace perfmodel
