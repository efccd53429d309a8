#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// nn.Dropout in training: zero with this probability, the rest scaled up. With 0 the op hands its
/// input on.
TensorRef dropout(AutogradTape& tape, TensorRef x, double probability);

/// Dropout on a GPU: one kernel draws and scales, the mask of bytes is kept.
struct Dropped {
  TensorRef out, mask;
};
Dropped native_dropout(GraphBuilder& graph, TensorRef x, double probability, std::int64_t sequence);
TensorRef native_dropout_backward(GraphBuilder& graph, TensorRef gradient, TensorRef mask,
                                  double probability);

}  // namespace perfmodel
