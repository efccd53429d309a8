#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Goes through `root` and all that stands below it, depth first: `open(index)` says whether to go
/// on below a node, `close()` follows where it did. Graphs may be deep: no recursion.
template <class Open, class Close>
void walk_tree(const ExecutionGraph& graph, std::int32_t root, Open&& open, Close&& close) {
  std::vector<std::int32_t> stack = {root};
  while (!stack.empty()) {
    const std::int32_t next = stack.back();
    stack.pop_back();
    if (next < 0) {
      close();
      continue;
    }
    if (!open(next)) continue;
    stack.push_back(-1);
    const auto children = graph.children(next);
    stack.insert(stack.end(), children.rbegin(), children.rend());
  }
}

/// The last node of a tree.
inline std::int32_t last_below(const ExecutionGraph& graph, std::int32_t tree) {
  const Node* last = &graph.node(tree);
  while (last->children_count > 0) {
    tree = graph.children(*last).back();
    last = &graph.node(tree);
  }
  return tree;
}

}  // namespace perfmodel
