#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loop_graph.hpp"

namespace perfmodel {

/// An op with all pointwise ops that are computed where it reads them.
struct InlinedOp {
  bool in_memory = false;         ///< its results are written; else their readers compute them
  std::vector<LoopRead> reads;    ///< values in memory
  std::vector<std::int32_t> ops;  ///< itself and the ones computed inside it
};

/// By op of the graph: the ops of one pass as Inductor's lowering leaves them
/// (torch/_inductor/ir.py and graph.py). Reductions, library calls, random numbers, results that
/// leave the pass or that a library call reads are in memory, and so are results that several ops
/// read, if they read much themselves.
std::vector<InlinedOp> inline_pointwise_ops(const LoopGraph& graph,
                                            std::span<const std::int32_t> ops,
                                            const std::vector<bool>& is_output);

}  // namespace perfmodel
