#pragma once

#include "perfmodel/sharding/detail/embedding_shards.hpp"

namespace perfmodel::sharding {

inline constexpr double kStateBytes = 4;  ///< each number is fp32

/// Numbers that an optimizer keeps for a row of so many columns.
inline double state_numbers(TableOptimizer optimizer, double columns) {
  if (optimizer == TableOptimizer::kAdam) return 2 * columns;
  if (optimizer == TableOptimizer::kAdagrad) return columns;
  return optimizer == TableOptimizer::kRowwiseAdagrad ? 1 : 0;
}

}  // namespace perfmodel::sharding
