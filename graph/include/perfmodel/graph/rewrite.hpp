#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A what-if: a graph becomes another one, or the reason why it cannot. The rewrites themselves are
/// in `perfmodel/graph/rewrites/`, one header each.
using Rewrite = std::function<Result<ExecutionGraph>(const ExecutionGraph&)>;

struct NamedRewrite {
  std::string name;  ///< as a command line says it: "--batch 1024"
  Rewrite apply;
};

/// Applies rewrites one after the other. The first that fails ends it; its name leads the error.
Result<ExecutionGraph> apply_rewrites(const ExecutionGraph& graph,
                                      std::span<const NamedRewrite> rewrites);

/// What tells two graphs apart, ids aside.
struct GraphDifference {
  std::size_t nodes_before = 0, nodes_after = 0;
  /// Nodes of the second graph that have a namesake in the first, but with other sizes, types,
  /// numbers or places (device, thread).
  std::size_t nodes_changed = 0;
  /// Names with fewer or more nodes, by the count of nodes, largest first.
  std::vector<std::pair<std::string, std::size_t>> gone, added;

  bool none() const { return nodes_changed == 0 && gone.empty() && added.empty(); }
};

/// Compares node by node within each name, in any order: a count of changes, no proof of equality.
GraphDifference graph_difference(const ExecutionGraph& before, const ExecutionGraph& after);

/// "412 of 903 nodes changed, 8 aten::embedding_bag gone, 1 fbgemm::… added"; at most three names
/// each.
std::string to_string(const GraphDifference& difference);

}  // namespace perfmodel
