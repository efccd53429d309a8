#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Visits `root` and all nodes below it, depth first: `open(index)` says whether to go on below a
/// node, `close()` follows if it did. Graphs may be deep: no recursion.
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

/// The parent of a node; -1: none. A file may say that a parent comes later, even in a circle: that
/// one is none.
inline std::int32_t parent_before(const ExecutionGraph& graph, std::int32_t node) {
  const std::int32_t parent = graph.node(node).parent;
  return parent < node ? parent : -1;
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

/// Which nodes of [begin, end) end with each of them. A file may say that a parent comes later:
/// that one is left out.
class EndingNodes {
 public:
  EndingNodes(const ExecutionGraph& graph, std::int32_t begin, std::int32_t end)
      : begin_(begin), nodes_(end - begin) {
    for (std::int32_t i = end; i-- > begin;) {
      at(i).last = std::max(at(i).last, i);
      const std::int32_t parent = graph.node(i).parent;
      if (parent >= begin && parent < i) at(parent).last = std::max(at(parent).last, at(i).last);
    }
    for (std::int32_t i = begin; i < end; ++i) at(i).next = std::exchange(at(at(i).last).first, i);
  }

  /// The last node inside a node.
  std::int32_t last(std::int32_t node) const { return nodes_[node - begin_].last; }

  /// Calls `visit(ended)` for the nodes whose last node is `node`, inner ones first.
  template <class Visit>
  void for_each(std::int32_t node, Visit&& visit) const {
    for (std::int32_t i = nodes_[node - begin_].first; i >= 0; i = nodes_[i - begin_].next)
      visit(i);
  }

 private:
  struct Ending {
    std::int32_t last = -1, first = -1, next = -1;
  };
  Ending& at(std::int32_t node) { return nodes_[node - begin_]; }

  std::int32_t begin_;
  std::vector<Ending> nodes_;
};

}  // namespace perfmodel
