#pragma once

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The PyTorch whose ops a builder writes: one model calls different ops on another device or
/// version. Known are 1.13 and 2.x; what changed in between is taken as 2.x has it.
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
