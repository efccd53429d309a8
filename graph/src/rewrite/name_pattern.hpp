#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Per name of the graph, whether it matches: '*' stands for any text.
std::vector<bool> matching_names(const ExecutionGraph& graph, std::string_view pattern);

/// "expected an op that matches ..., found none", with names that the pattern may have meant.
Unexpected no_match(const ExecutionGraph& graph, std::string_view pattern, std::string_view what);

/// Parents come before their children, so one walk in order finds all nodes below others.
template <class Inside>
std::vector<bool> at_or_below(const ExecutionGraph& graph, Inside&& inside) {
  std::vector<bool> found(graph.nodes.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int32_t parent = graph.nodes[i].parent;
    found[i] = inside(i) || (parent >= 0 && static_cast<std::size_t>(parent) < i && found[parent]);
  }
  return found;
}

}  // namespace perfmodel
