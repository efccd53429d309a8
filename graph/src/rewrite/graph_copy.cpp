#include "graph_copy.hpp"

#include <fmt/format.h>

#include <tuple>
#include <unordered_map>
#include <utility>

namespace perfmodel {
namespace {

std::string named(const ExecutionGraph& graph, const Node& node) {
  return fmt::format("\"{}\" (node {})", graph.name(node), node.id);
}

Unexpected not_nested(std::string_view expected, std::string found) {
  return fail(ErrorCode::kFormat, fmt::format("expected {}, found {}", expected, found));
}

}  // namespace

Result<void> check_nesting(const ExecutionGraph& graph) {
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> open_by_thread;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto index = static_cast<std::int32_t>(i);
    std::vector<std::int32_t>& open = open_by_thread[node.thread];
    const Node* parent = node.parent < 0 ? nullptr : &graph.node(node.parent);
    if (parent && node.parent >= index) {
      return not_nested(
          "a node behind its parent",
          fmt::format("{} in front of its parent, {}", named(graph, node), named(graph, *parent)));
    }
    if (parent && parent->thread == node.thread) {
      while (!open.empty() && open.back() != node.parent) open.pop_back();
      if (open.empty()) {
        return not_nested("nodes inside of each other",
                          fmt::format("{} behind the end of its parent, {}", named(graph, node),
                                      named(graph, *parent)));
      }
    } else if (parent && !parent->is_structural) {
      return not_nested(
          "a node on the thread of its parent",
          fmt::format("{} on thread {} and its parent, {}, on thread {}", named(graph, node),
                      node.thread, named(graph, *parent), parent->thread));
    }
    open.push_back(index);
  }
  return {};
}

GraphCopy::GraphCopy(const ExecutionGraph& source, const PyTorch& pytorch)
    : source_(source), builder_(source, pytorch), copies_(source.nodes.size(), -1) {}

// Leaves the nearest ancestor that was copied open; none: nothing on the node's thread.
void GraphCopy::open_parent(std::int32_t index) {
  const Node& node = source_.node(index);
  const std::int32_t parent =
      source_.find_around(node.parent, [&](std::int32_t i) { return copied(i) >= 0; });
  const bool same_thread = parent >= 0 && source_.node(parent).thread == node.thread;
  if (same_thread) {
    close_to(parent);
  } else {  // a thread's own node, or an orphan
    builder_.close_thread(node.thread);
  }
}

void GraphCopy::copy(std::int32_t index) {
  open_parent(index);
  copies_[index] = static_cast<std::int32_t>(builder_.graph_being_made().nodes.size());
  builder_.copy_node(source_.node(index));
}

void GraphCopy::nest(std::int32_t index) {
  copies_[index] = static_cast<std::int32_t>(builder_.graph_being_made().nodes.size());
  builder_.copy_node(source_.node(index));
  Node& inner = builder_.graph_being_made().nodes.back();
  std::tie(inner.inputs_begin, inner.inputs_count) =
      builder_.copy_arguments(inner.inputs_begin, inner.inputs_count);
  std::tie(inner.outputs_begin, inner.outputs_count) =
      builder_.copy_arguments(inner.outputs_begin, inner.outputs_count);
}

// Depth first, children in their order; a stack of its own, for graphs may be deep.
void GraphCopy::copy_tree(std::int32_t index) {
  std::vector<std::int32_t> open = {index};
  while (!open.empty()) {
    const std::int32_t next = open.back();
    open.pop_back();
    copy(next);
    const auto children = source_.children(next);
    open.insert(open.end(), children.rbegin(), children.rend());
  }
}

void GraphCopy::close_to(std::int32_t index) {
  if (copied(index) < 0) return close_beside(index);
  const auto at = static_cast<std::size_t>(copied(index));
  builder_.close_to(source_.node(index).thread, at);
}

void GraphCopy::close_beside(std::int32_t index) {
  open_parent(index);
  builder_.switch_thread(source_.node(index).thread);
}

ExecutionGraph GraphCopy::finish() {
  std::unordered_map<std::int64_t, std::int64_t> new_ids;
  ExecutionGraph& made = builder_.graph_being_made();
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i] < 0) continue;
    new_ids[source_.nodes[i].id] = made.node(copies_[i]).id;
  }
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i] < 0 || source_.nodes[i].fw_parent == 0) continue;
    const auto forward = new_ids.find(source_.nodes[i].fw_parent);
    made.node(copies_[i]).fw_parent = forward == new_ids.end() ? 0 : forward->second;
  }
  return builder_.finish();
}

}  // namespace perfmodel
