#pragma once

#include <cstdint>
#include <vector>

#include "loop_graph.hpp"

namespace perfmodel {

/// A kernel of a compiled pass: a group of loops, or a library call.
struct LoopKernel {
  LoopKind kind = LoopKind::kPointwise;
  std::vector<std::int32_t> ops;       ///< those whose results it computes for memory or itself
  std::vector<std::int32_t> computed;  ///< all ops that run in it, sorted
  std::vector<LoopRead> reads;         ///< from other kernels and from outside
  std::vector<std::int32_t> writes;    ///< values that others read
  std::int64_t rows = 1, columns = 1;  ///< see LoopOp
  std::int32_t product = -1;           ///< the loops run in the kernel of this op; -1: of none
};

}  // namespace perfmodel
