#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loop_graph.hpp"

namespace perfmodel {

/// A kernel of a compiled pass: a group of loops, or a library call.
struct LoopKernel {
  LoopKind kind = LoopKind::kPointwise;
  std::vector<std::int32_t> ops;       ///< those whose results it computes for memory or itself
  std::vector<std::string> names;      ///< of all ops that run in it, sorted, each once
  std::vector<LoopRead> reads;         ///< of other kernels and from outside
  std::vector<std::int32_t> writes;    ///< what others read
  std::int64_t rows = 1, columns = 1;  ///< see LoopOp
};

/// Kernels as Inductor of PyTorch 2 makes them of the ops of one pass: pointwise ops are computed
/// where they are read (torch/_inductor/ir.py), unless a library call reads them or several ops
/// read much; what is left is fused with what reads it or reads the same, by the bytes that this
/// saves (torch/_inductor/scheduler.py). `is_output`: by value.
std::vector<LoopKernel> loop_kernels(const LoopGraph& graph, std::span<const std::int32_t> ops,
                                     const std::vector<bool>& is_output);

}  // namespace perfmodel
