#include "graph_edit.hpp"

#include <utility>

namespace perfmodel {

GraphEdit::GraphEdit(const ExecutionGraph& source, const PyTorch& pytorch)
    : copy_(source, pytorch), done_(source.nodes.size()), hollow_(source.nodes.size()) {}

void GraphEdit::replace(std::int32_t node, Write write) {
  Change& change = changes_[node];
  change.gone = true;
  if (write) change.instead = std::move(write);
}

void GraphEdit::refill(std::int32_t node, Write write) {
  Change& change = changes_[node];
  change.hollow = true;
  change.behind = std::move(write);
}

ExecutionGraph GraphEdit::write() {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(source().nodes.size()); ++i) write(i);
  return copy_.finish();
}

void GraphEdit::write(std::int32_t node) {
  if (done_[node]) return;
  done_[node] = true;
  const std::int32_t parent = source().node(node).parent;
  hollow_[node] = parent >= 0 && hollow_[parent];
  const auto found = changes_.find(node);
  if (found == changes_.end()) {
    if (hollow_[node]) return;
    copy_.copy(node);
    if (on_copy_) on_copy_(node, made().nodes.back());
    return;
  }
  const Change& change = found->second;
  if (change.before) change.before();
  if (hollow_[node] || change.gone) {
    hollow_[node] = true;
    if (change.instead) change.instead();
    return;
  }
  if (change.unwrapped) return;
  hollow_[node] = change.hollow;
  copy_.copy(node);
  if (on_copy_) on_copy_(node, made().nodes.back());
  if (change.behind) change.behind();
  if (!change.behind_tree) return;
  write_below(node);
  change.behind_tree();
}

// Depth first, children in their order; a stack of its own, for graphs may be deep.
void GraphEdit::write_below(std::int32_t node) {
  const auto push = [&](std::vector<std::int32_t>& open, std::int32_t parent) {
    const auto children = source().children(parent);
    open.insert(open.end(), children.rbegin(), children.rend());
  };
  std::vector<std::int32_t> open;
  push(open, node);
  while (!open.empty()) {
    const std::int32_t next = open.back();
    open.pop_back();
    write(next);
    push(open, next);
  }
}

}  // namespace perfmodel
