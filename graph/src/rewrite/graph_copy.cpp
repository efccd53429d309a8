#include "graph_copy.hpp"

#include <unordered_map>
#include <utility>

namespace perfmodel {

void own_arguments(GraphBuilder& builder, Node& node) {
  node.inputs_begin = builder.copy_arguments(node.inputs_begin, node.inputs_count).first;
  node.outputs_begin = builder.copy_arguments(node.outputs_begin, node.outputs_count).first;
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
  own_arguments(builder_, builder_.graph_being_made().nodes.back());
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
