#pragma once

#include <cstdint>

#include "step_view.hpp"

namespace perfmodel {

/// By gradient, the model's weight that an optimizer changes with it; into ExecutionGraph::tensors,
/// -1: no optimizer takes it. Steps that read_optimizer_step() does not know are left out.
FactsOfValues<std::int64_t> weights_by_gradient(const StepView& view);

}  // namespace perfmodel
