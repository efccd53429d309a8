#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/launching.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A what-if: a graph becomes another one, or the reason why it cannot. The rewrites themselves are
/// in `perfmodel/graph/rewrites/`, one header each.
using Rewrite = std::function<Result<ExecutionGraph>(const ExecutionGraph&)>;

struct NamedRewrite {
  std::string name;  ///< as a command line says it: "--batch 1024"
  Rewrite apply;
  /// A graph that was made of a trace will do: the rewrite needs no results of ops, nor which
  /// tensors are the same.
  bool of_ops_alone = false;
  /// Nothing of the graph changes, but how predictions launch it.
  std::optional<Launching> launching = {};
};

/// The last one that is said; eager without any.
Launching launching_of(std::span<const NamedRewrite> rewrites);

/// Fails at a rewrite that needs tensors which a graph that was made of a trace does not have.
Result<void> check_rewrites(const ExecutionGraph& graph, std::span<const NamedRewrite> rewrites);

/// Applies rewrites in their order and stops at the first error, which begins with the rewrite's
/// name. If the graph was made from a trace, rewrites that need its tensors are refused.
Result<ExecutionGraph> apply_rewrites(const ExecutionGraph& graph,
                                      std::span<const NamedRewrite> rewrites);

/// The difference of two graphs, ids aside.
struct GraphDifference {
  std::size_t nodes_before = 0, nodes_after = 0;
  /// Nodes of the second graph that have a namesake in the first, but with other sizes, types,
  /// layouts, numbers or places (device, thread).
  std::size_t nodes_changed = 0;
  /// Names with fewer or more nodes, by the count of nodes, largest first.
  std::vector<std::pair<std::string, std::size_t>> gone, added;
  std::optional<bool> tf32;  ///< whether products may now run in TF32; none: as before

  bool none() const { return nodes_changed == 0 && gone.empty() && added.empty() && !tf32; }
};

/// Compares node by node within each name, in any order: a count of changes, no proof of equality.
GraphDifference graph_difference(const ExecutionGraph& before, const ExecutionGraph& after);

/// "412 of 903 nodes changed, 8 aten::embedding_bag gone, 1 fbgemm::… added"; at most three names
/// each.
std::string to_string(const GraphDifference& difference);

// The primitives of Daydream's what-ifs (Zhu et al., 2020, section 5). Patterns are names in which
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
