#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "step_view.hpp"

namespace perfmodel {

/// Forward ops whose results are no longer needed once the nodes in `gone` (by node, with all below
/// them) are left out: nothing else reads their results, and they have no backward function that
/// stays. New nodes read the results of the ops in `read`.
std::vector<std::int32_t> ops_left_unread(const StepView& step, std::vector<bool> gone,
                                          std::span<const std::int32_t> read);

/// Marks a node and all below it.
void mark_tree(const ExecutionGraph& graph, std::int32_t node, std::vector<bool>& marked);

}  // namespace perfmodel
