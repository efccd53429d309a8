#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// Mean over the batch.
TensorRef binary_cross_entropy(AutogradTape& tape, TensorRef prediction, TensorRef target);

/// The same of sigmoid(logits), in one op.
TensorRef binary_cross_entropy_with_logits(AutogradTape& tape, TensorRef logits, TensorRef target);

}  // namespace perfmodel
