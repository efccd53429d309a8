#pragma once

#include "step/step_view.hpp"

namespace perfmodel {

/// A model whose weights, activations and gradients are in a half type, and whose optimizer changes
/// fp32 copies of the weights: see PrecisionOptions::master_weights. `step` is of an fp32 graph on
/// a GPU that check_nesting() finds good. Errors: as read_optimizer_step().
Result<ExecutionGraph> half_model(const StepView& step, DType half);

/// The same of a graph whose weights are in the half type already: its optimizers change fp32
/// copies, with state of their own. Errors: no weights of that type; copies that are there already.
Result<ExecutionGraph> with_fp32_copies(const StepView& step, DType half);

}  // namespace perfmodel
