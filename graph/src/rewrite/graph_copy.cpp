#include "graph_copy.hpp"

#include <algorithm>

#include "step/autograd_names.hpp"

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
  write(index);
}

void GraphCopy::nest(std::int32_t index) {
  write(index);
  own_arguments(builder_, builder_.graph_being_made().nodes.back());
}

void GraphCopy::write(std::int32_t index) {
  ExecutionGraph& made = builder_.graph_being_made();
  copies_[index] = static_cast<std::int32_t>(made.nodes.size());
  builder_.copy_node(source_.node(index));
  made.nodes.back().fw_parent = id_of_copy(source_.node(index).fw_parent);
}

std::int64_t GraphCopy::id_of_copy(std::int64_t id) {
  if (id == 0) return 0;
  const auto at = std::ranges::lower_bound(source_.nodes, id, {}, &Node::id);
  if (at == source_.nodes.end() || at->id != id) return 0;
  const std::int32_t copy = copied(static_cast<std::int32_t>(at - source_.nodes.begin()));
  return copy < 0 ? 0 : builder_.graph_being_made().node(copy).id;
}

void GraphCopy::begin_function(const BackwardFunction& next_to, const std::string& name,
                               TensorRef gradient, std::int64_t sequence) {
  const Node& like = source_.node(next_to.function);
  close_beside(next_to.evaluate);
  builder_.begin_plain(std::string(kEvaluate) + name);
  builder_.begin_backward_function(name, {gradient}, sequence);
  Node& made = builder_.graph_being_made().nodes[builder_.innermost()];
  made.fw_thread = like.fw_thread;
  made.fw_parent = id_of_copy(like.fw_parent);
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

}  // namespace perfmodel
