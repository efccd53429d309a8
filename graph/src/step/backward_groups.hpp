#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step_view.hpp"

namespace perfmodel {

/// The backward functions of a group of forward ops.
struct BackwardGroup {
  std::vector<std::int32_t> functions;           ///< into BackwardPass::functions, as they ran
  std::vector<GradientEdge> incoming, outgoing;  ///< between them and other functions
};

/// The backward pass of each of `count` groups; `group_of` is the group of each op of
/// StepView::forward(), by node, -1: none.
std::vector<BackwardGroup> backward_groups(const StepView& step,
                                           std::span<const std::int32_t> group_of,
                                           std::size_t count);

/// The gradient as its taker reads it: added to the earlier ones.
std::uint32_t taken_gradient(const ExecutionGraph& graph, const GradientEdge& edge);

}  // namespace perfmodel
