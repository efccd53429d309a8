#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// Mean over the batch.
TensorRef binary_cross_entropy(AutogradTape& tape, TensorRef prediction, TensorRef target);
TensorRef binary_cross_entropy_backward(GraphBuilder& graph, TensorRef gradient,
                                        TensorRef prediction, TensorRef target);

}  // namespace perfmodel
