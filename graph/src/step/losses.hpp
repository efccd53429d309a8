#pragma once

#include <cstdint>
#include <vector>

#include "step_view.hpp"

namespace perfmodel {

/// A loss from which a backward pass starts; tensors by index in the graph.
struct Loss {
  std::uint32_t tensor = 0, gradient = 0;
  std::int32_t ones = -1;          ///< node that makes the gradient
  BackwardFunction function = {};  ///< takes the gradient; no other function hands it one
};

/// In the order of the backward passes. A pass that does not start from `ones_like(loss)` has none.
std::vector<Loss> losses(const StepView& step);

}  // namespace perfmodel
