#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// The `reduction` of losses.
inline constexpr std::int64_t kReduceMean = 1, kReduceSum = 2;

/// Mean over the batch.
TensorRef binary_cross_entropy(GraphBuilder& graph, TensorRef prediction, TensorRef target,
                               std::int64_t sequence);
TensorRef binary_cross_entropy(AutogradTape& tape, TensorRef prediction, TensorRef target);
TensorRef binary_cross_entropy_backward(GraphBuilder& graph, TensorRef gradient,
                                        TensorRef prediction, TensorRef target);

}  // namespace perfmodel
