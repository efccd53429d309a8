#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// Tensors of nn.BatchNorm2d: scale and shift with gradient, statistics over the batches so far.
struct BatchNorm {
  TensorRef weight, bias, mean, variance;  ///< [C]
  TensorRef batches;                       ///< int64, no axes
  double epsilon = 1e-5;
};

/// Training: statistics of this batch, x [B, C, H, W] or [B, C].
TensorRef batch_norm(AutogradTape& tape, TensorRef x, const BatchNorm& norm);

}  // namespace perfmodel
