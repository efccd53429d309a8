#pragma once

#include <vector>

#include "autocast_plan.hpp"

namespace perfmodel {

/// `region`: see autocast_region()
AutocastPlan plan_autocast(const StepView& step, const std::vector<bool>& region,
                           const AutocastOptions& options);

/// A step as torch.autocast would have it, see rewrite_precision(); preconditions were checked.
ExecutionGraph autocast_graph(const StepView& step, const std::vector<bool>& region,
                              const AutocastOptions& options);

}  // namespace perfmodel
