#include "unread_ops.hpp"

#include "base/contains.hpp"
#include "ops/catalogue.hpp"
#include "tree_walk.hpp"

namespace perfmodel {
namespace {

bool only_computes(std::string_view name) {
  const Op* op = find_op(name);
  if (!op) return false;
  switch (op->kind) {
    case OpKind::kView:
    case OpKind::kPointwise:
    case OpKind::kAllocation:
    case OpKind::kFill:
    case OpKind::kCast: return true;
    case OpKind::kComposite:  // torch.full(...)
      return size_rule(*op) == "create" || name == "aten::scalar_tensor";
    default: return false;
  }
}

}  // namespace

void mark_tree(const ExecutionGraph& graph, std::int32_t node, std::vector<bool>& marked) {
  for (std::int32_t i = node, last = last_below(graph, node); i <= last; ++i) {
    if (graph.is_inside(i, node)) marked[i] = true;
  }
}

std::vector<std::int32_t> ops_left_unread(const StepView& step, std::vector<bool> gone,
                                          std::span<const std::int32_t> read) {
  const ExecutionGraph& graph = step.graph();
  std::vector<bool> has_function(graph.nodes.size());
  for (const BackwardFunction& function : step.backward().functions) {
    const std::int32_t op = step.forward().op_around(function.forward);
    if (op >= 0 && !gone[function.evaluate]) has_function[op] = true;
  }
  const auto is_unread = [&](std::int32_t op) {
    bool unread = true;
    for_each_tensor(graph, graph.outputs(op), [&](const Tensor& made) {
      for (const std::int32_t reader : step.tensors().readers(step.tensors().of(made))) {
        unread &= gone[reader] || graph.is_inside(reader, op);
      }
    });
    return unread;
  };
  std::vector<std::int32_t> open, unread;
  const auto open_makers = [&](std::int32_t op) {
    for (const Version* input : step.forward().inputs(op)) {
      if (input->op >= 0) open.push_back(input->op);
    }
  };
  for (const std::int32_t op : step.forward().ops()) {
    if (gone[op]) open_makers(op);
  }
  while (!open.empty()) {
    const std::int32_t op = open.back();
    open.pop_back();
    if (gone[op] || has_function[op] || contains(read, op) || !only_computes(graph.name(op)) ||
        !is_unread(op))
      continue;
    mark_tree(graph, op, gone);
    unread.push_back(op);
    open_makers(op);
  }
  return unread;
}

}  // namespace perfmodel
