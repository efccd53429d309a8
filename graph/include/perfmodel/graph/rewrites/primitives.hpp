#pragma once

#include <string>
#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

// What Daydream (Zhu et al., 2020, section 5) builds its what-ifs of. Patterns are names in which
// '*' stands for any text: "aten::mm", "autograd::engine::evaluate_function: *", "## forward ##".
// A pattern that matches no node is an error that lists near names.

/// Keeps the nodes that match `pattern` and all below them, and the labels and threads above. Two
/// numbers A:B are node ids instead: top-level ops from A up to B, without B.
Result<ExecutionGraph> keep_subgraph(const ExecutionGraph& graph, std::string_view pattern);

/// Takes out ops that match, with all below them. Tensors that they made come from outside then.
Result<ExecutionGraph> remove_ops(const ExecutionGraph& graph, std::string_view pattern);

/// The most that may be said of kernels: a day, and a million times what is predicted. Files of
/// graphs and replays of traces know the same limits.
inline constexpr double kMostKernelTimeUs = 24 * 3600e6, kMostKernelTimeScale = 1e6;

struct KernelTimeOptions {
  std::string pattern;
  double value = 0;  ///< microseconds, or a factor; from 0 to kMostKernelTimeUs or ...Scale
};

/// The kernels of every op that matches take `value` microseconds together, shared out as
/// predicted; of nested matches the outermost counts. Kept in Node::kernel_time_us and in the file;
/// copies, sets and collectives of the op included. Ops without kernels stay without.
Result<ExecutionGraph> set_kernel_time(const ExecutionGraph& graph,
                                       const KernelTimeOptions& options);

/// Multiplies the predicted times of these kernels by `value` (Node::kernel_time_scale); factors of
/// repeated calls multiply.
Result<ExecutionGraph> scale_kernel_time(const ExecutionGraph& graph,
                                         const KernelTimeOptions& options);

}  // namespace perfmodel
