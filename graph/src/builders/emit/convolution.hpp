#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// Sizes are [height, width].
struct Conv2d {
  Shape stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  std::int64_t groups = 1;
  bool transposed = false;  ///< nn.ConvTranspose2d, no output padding
};

/// Height and width behind a convolution or a window of a pooling op.
Shape convolved_size(const Shape& size, const Shape& kernel, const Conv2d& conv);

/// x [B, C, H, W], weight [K, C / groups, R, S] (transposed: [C, K / groups, R, S]), bias [K] or
/// none. By cuDNN on a GPU, by oneDNN on a CPU, where transposed ones are not known.
TensorRef conv2d(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias,
                 const Conv2d& conv);

}  // namespace perfmodel
