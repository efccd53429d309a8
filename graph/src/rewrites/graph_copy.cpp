#include "graph_copy.hpp"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace perfmodel {

GraphCopy::GraphCopy(const ExecutionGraph& source, const PyTorch& pytorch)
    : source_(source), builder_(source, pytorch), copies_(source.nodes.size(), -1) {}

void GraphCopy::copy(std::int32_t index) {
  const Node& node = source_.nodes[static_cast<std::size_t>(index)];
  std::int32_t parent = node.parent;
  while (parent >= 0 && copied(parent) < 0) {
    parent = source_.nodes[static_cast<std::size_t>(parent)].parent;
  }
  const bool same_thread =
      parent >= 0 && source_.nodes[static_cast<std::size_t>(parent)].thread == node.thread;
  if (same_thread) {
    close_to(parent);
  } else {  // a thread's own node, or an orphan
    builder_.close_thread(node.thread);
  }
  copies_[static_cast<std::size_t>(index)] =
      static_cast<std::int32_t>(builder_.graph_being_made().nodes.size());
  builder_.copy_node(node);
}

void GraphCopy::nest(std::int32_t index) {
  copies_[static_cast<std::size_t>(index)] =
      static_cast<std::int32_t>(builder_.graph_being_made().nodes.size());
  builder_.copy_node(source_.nodes[static_cast<std::size_t>(index)]);
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
    const auto children = source_.children(source_.nodes[static_cast<std::size_t>(next)]);
    open.insert(open.end(), children.rbegin(), children.rend());
  }
}

void GraphCopy::close_to(std::int32_t index) {
  const auto at = static_cast<std::size_t>(copied(index));
  builder_.switch_thread(source_.nodes[static_cast<std::size_t>(index)].thread);
  while (builder_.innermost() != at) builder_.close();
}

ExecutionGraph GraphCopy::finish() {
  std::unordered_map<std::int64_t, std::int64_t> new_ids;
  ExecutionGraph& made = builder_.graph_being_made();
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i] < 0) continue;
    new_ids[source_.nodes[i].id] = made.nodes[static_cast<std::size_t>(copies_[i])].id;
  }
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i] < 0 || source_.nodes[i].fw_parent == 0) continue;
    const auto forward = new_ids.find(source_.nodes[i].fw_parent);
    made.nodes[static_cast<std::size_t>(copies_[i])].fw_parent =
        forward == new_ids.end() ? 0 : forward->second;
  }
  return builder_.finish();
}

}  // namespace perfmodel
