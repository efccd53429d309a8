#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// A square window.
struct Pool2d {
  std::int64_t kernel = 2, stride = 2, padding = 0;
};

// x [B, C, H, W].
TensorRef max_pool2d(AutogradTape& tape, TensorRef x, const Pool2d& pool);
TensorRef avg_pool2d(AutogradTape& tape, TensorRef x, const Pool2d& pool);
/// Windows so that [height, width] come out; [1, 1] is a mean.
TensorRef adaptive_avg_pool2d(AutogradTape& tape, TensorRef x, const Shape& size);

/// F.interpolate(x, size) to larger [height, width] by the nearest element.
TensorRef upsample_nearest2d(AutogradTape& tape, TensorRef x, const Shape& size);

}  // namespace perfmodel
