#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rewrite/graph_edit.hpp"
#include "step/forward_flow.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// The gradient that a group of functions hands to one function outside; tensors by index in the
/// graph.
struct HandedGradient {
  std::int32_t from = -1;  ///< hands over the first part; into BackwardPass::functions
  std::int32_t to = -1;
  std::uint32_t first = 0;  ///< the group's first part
  std::uint32_t taken = 0;  ///< the whole, with the group's last part
  std::int32_t sum = -1;    ///< adds the group's part to earlier gradients; -1: there are none
};

/// Ops of the forward pass that become one function of autograd with one result.
struct FusedGroup {
  std::vector<std::int32_t> ops;  ///< into StepView::forward(), sorted
  const Version* result = nullptr;

  std::vector<std::int32_t> functions = {};  ///< into BackwardPass::functions, as they ran
  std::vector<HandedGradient> handed = {};   ///< one per function that takes a gradient
  std::int64_t sequence = -1;                ///< autograd's last number inside
  std::string broken = {};                   ///< why they cannot become one; empty: they can

  /// The gradient that the function `to` gets; null: none.
  const HandedGradient* to_function(std::int32_t to) const;
};

/// Fills in the backward pass of groups, of which `ops` and `result` are known. A group is broken
/// if something else reads its inner results, if an op of it works in place, or if gradients from
/// elsewhere are added between its own.
void find_backward(const StepView& step, std::vector<FusedGroup>& groups);

/// The gradient of a version in the functions that follow the group; null: it gets none.
const HandedGradient* gradient_of(const StepView& step, const FusedGroup& group,
                                  const Version* version);

/// Writes the ops of the function: it takes `gradient` and makes the part of each of
/// FusedGroup::handed, in their order.
using WriteGradients = std::function<void(TensorRef gradient, const std::vector<TensorRef>& parts)>;

/// Puts `forward` in the place of the group's last op, and one backward function called `function`
/// in the place of its first.
void replace_group(GraphEdit& edit, const StepView& step, const FusedGroup& group,
                   const GraphEdit::Write& forward, const std::string& function,
                   const WriteGradients& backward);

}  // namespace perfmodel
