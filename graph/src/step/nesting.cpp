#include "nesting.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace perfmodel {
namespace {

std::string named(const ExecutionGraph& graph, const Node& node) {
  return fmt::format("\"{}\" (node {})", graph.name(node), node.id);
}

// Null: none. The process, which is its own parent, holds threads and orphans.
const Node* around(const ExecutionGraph& graph, const Node& node) {
  if (node.parent < 0) return nullptr;
  const Node& parent = graph.node(node.parent);
  return parent.parent_id == parent.id ? nullptr : &parent;
}

Unexpected not_nested(std::string_view expected, std::string found) {
  return fail(ErrorCode::kFormat, fmt::format("expected {}, found {}", expected, found));
}

}  // namespace

Result<void> check_nesting(const ExecutionGraph& graph) {
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> open_by_thread;
  std::vector<std::int32_t>* of_thread = nullptr;  // where the last node was added
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto index = static_cast<std::int32_t>(i);
    const bool is_other_thread = i == 0 || graph.nodes[i - 1].thread != node.thread;
    if (is_other_thread) of_thread = &open_by_thread[node.thread];
    std::vector<std::int32_t>& open = *of_thread;
    const Node* parent = around(graph, node);
    if (parent && node.parent >= index) {
      return not_nested(
          "a node after its parent",
          fmt::format("{} in front of its parent, {}", named(graph, node), named(graph, *parent)));
    }
    if (parent && parent->thread == node.thread) {
      while (!open.empty() && open.back() != node.parent) open.pop_back();
      if (open.empty()) {
        return not_nested("nodes inside of each other",
                          fmt::format("{} after the end of its parent, {}", named(graph, node),
                                      named(graph, *parent)));
      }
    } else if (parent) {
      return not_nested(
          "a node on the thread of its parent",
          fmt::format("{} on thread {} and its parent, {}, on thread {}", named(graph, node),
                      node.thread, named(graph, *parent), parent->thread));
    }
    open.push_back(index);
  }
  return {};
}

}  // namespace perfmodel
