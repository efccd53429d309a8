#pragma once

#include "step/step_view.hpp"

namespace perfmodel {

/// Scales the losses of a step by torch.cuda.amp.GradScaler as PyTorch 2 writes it: the loss times
/// the scale, whose gradient is the first function of the backward pass; in front of the optimizer,
/// gradients divided by the scale and checked, where the host waits for the answer; then the next
/// scale.
ExecutionGraph with_grad_scaler(const StepView& step);

}  // namespace perfmodel
