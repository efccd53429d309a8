#pragma once

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The PyTorch whose ops a builder writes: one model calls different ops on another device or
/// version. Known are 1.13, 2.0 and 2.4; a later version counts as the last one. 1.7 is 1.13 with a
/// clip_grad_norm_ that waits for the GPU.
///
/// Before 2.0 zero_grad fills gradients with zeros, optimizers walk the parameters one by one, and
/// a region allocates a handle. Before 2.1 a view by reshape() is `aten::_reshape_alias`, cuBLASLt
/// gets its workspace from `aten::empty`, and ones_like() spells out its options.
struct PyTorch {
  int major = 2, minor = 4;
  Device device = {.kind = Device::Kind::kGpu, .index = 0};  ///< where the model computes

  /// On a CPU: linear algebra by MKL and convolutions by oneDNN, as in PyTorch's own packages.
  /// Builds without MKL (Debian's) call the generic BLAS through a few more ops.
  bool mkl = true;

  bool on_gpu() const { return device.kind == Device::Kind::kGpu; }
  bool before(int other_major, int other_minor) const {
    return major < other_major || (major == other_major && minor < other_minor);
  }
};

}  // namespace perfmodel
