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

/// The kernels' ops of the latter for other sizes, without gradient.
TensorRef windows_of_any_size(GraphBuilder& graph, TensorRef x, const Shape& size,
                              std::int64_t sequence);
TensorRef windows_of_any_size_backward(GraphBuilder& graph, TensorRef gradient, TensorRef x);

/// F.interpolate(x, size) to larger [height, width] by the nearest element.
TensorRef upsample_nearest2d(AutogradTape& tape, TensorRef x, const Shape& size);

}  // namespace perfmodel
