#pragma once

#include <cstdint>
#include <vector>

#include "rewrite/graph_edit.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// Where a region begins that holds these ops: the first of them, or the outermost label around it
/// that holds neither an op before it nor the last.
std::int32_t place_of_region(const StepView& step, const std::vector<std::int32_t>& ops);

/// Takes out the labels of modules that hold only nodes of regions: compiled code has no labels of
/// modules. `in_region`: by node, the outermost nodes of regions.
void remove_empty_labels(GraphEdit& edit, const std::vector<bool>& in_region);

}  // namespace perfmodel
