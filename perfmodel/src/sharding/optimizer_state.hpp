#pragma once

#include "perfmodel/sharding/detail/embedding_shards.hpp"

namespace perfmodel::sharding {

/// Numbers that an optimizer keeps for a row of so many columns.
inline double state_numbers(TableOptimizer optimizer, double columns) {
  if (optimizer == TableOptimizer::kAdam) return 2 * columns;
  if (optimizer == TableOptimizer::kAdagrad) return columns;
  return optimizer == TableOptimizer::kRowwiseAdagrad ? 1 : 0;
}

}  // namespace perfmodel::sharding
