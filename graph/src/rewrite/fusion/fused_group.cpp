#include "fused_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/contains.hpp"
#include "ops/catalogue.hpp"
#include "step/backward_groups.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

std::string named(const ExecutionGraph& graph, std::int32_t node) {
  return fmt::format("{} (node {})", graph.name(node), graph.node(node).id);
}

// Nodes of the groups, forward and backward: the number of the group, -1: none.
class GroupOfNode {
 public:
  GroupOfNode(const StepView& step, const std::vector<FusedGroup>& groups)
      : graph_(step.graph()), of_(graph_.nodes.size(), -1) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      for (const std::int32_t op : groups[i].ops) of_[op] = static_cast<std::int32_t>(i);
    }
    ops_ = of_;
    const std::vector<BackwardGroup> backward = backward_groups(step, ops_, groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      for (const std::int32_t f : backward[i].functions) {
        of_[step.backward().functions[f].evaluate] = static_cast<std::int32_t>(i);
      }
    }
  }

  const std::vector<std::int32_t>& ops() const { return ops_; }
  std::int32_t operator()(std::int32_t node) const {
    const std::int32_t at = graph_.find_around(node, [&](std::int32_t i) { return of_[i] >= 0; });
    return at < 0 ? -1 : of_[at];
  }

 private:
  const ExecutionGraph& graph_;
  std::vector<std::int32_t> of_, ops_;
};

// Names the tensor that something outside reads or that is written in place.
std::string open_part(const StepView& step, const FusedGroup& group, std::int32_t index,
                      const GroupOfNode& group_of) {
  const ExecutionGraph& graph = step.graph();
  std::string broken;
  for (const std::int32_t op : group.ops) {
    for_each_tensor(graph, graph.outputs(op), [&](const Tensor& made) {
      if (!broken.empty() || made.id == graph.tensors[group.result->tensor].id) return;
      if (takes(graph, op, made)) {
        if (!is_conversion(graph.name(op))) broken = named(graph, op) + " works in place";
        return;
      }
      for (const std::int32_t reader : step.tensors().readers(step.tensors().of(made))) {
        if (group_of(reader) == index || !broken.empty()) continue;
        broken = fmt::format("{} reads the result of {}", named(graph, reader), named(graph, op));
      }
    });
  }
  return broken;
}

// Gradients of one group to one function, which must be summed one after the other.
std::optional<HandedGradient> handed_gradient(const StepView& step, const BackwardGroup& group,
                                              std::int32_t to) {
  const ExecutionGraph& graph = step.graph();
  const auto edges = edges_to(step.backward(), to);
  const auto is_own = [&](const GradientEdge& edge) {
    return std::ranges::find(group.functions, edge.from) != group.functions.end();
  };
  const auto first = std::ranges::find_if(edges, is_own);
  const auto last = std::find_if_not(first, edges.end(), is_own);
  if (std::any_of(last, edges.end(), is_own)) return std::nullopt;
  HandedGradient handed{.from = first->from,
                        .to = to,
                        .first = first->tensor,
                        .taken = taken_gradient(graph, *(last - 1)),
                        .sum = first->sum};
  if (handed.sum < 0) return handed;
  const Tensor* before = input_at(graph, handed.sum, 0);
  const std::int32_t begin = step.backward().functions[group.functions.front()].evaluate;
  const bool is_there = before && step.tensors().maker(step.tensors().of(*before)) < begin;
  return is_there ? std::optional(handed) : std::nullopt;
}

void read_functions(const StepView& step, const BackwardGroup& backward, FusedGroup& group) {
  group.functions = backward.functions;
  for (const std::int32_t op : group.ops) {
    group.sequence = std::max(group.sequence, step.graph().node(op).seq_id);
  }
  if (group.functions.empty()) return;
  group.sequence = -1;
  const auto function = [&](std::int32_t index) { return step.backward().functions[index]; };
  for (const std::int32_t one : group.functions) {
    group.sequence = std::max(group.sequence, function(one).sequence);
  }
  for (const GradientEdge& edge : backward.incoming) {
    if (edge.to == group.functions.front()) continue;
    group.broken = named(step.graph(), function(edge.to).function) +
                   " takes a gradient from outside in the middle of them";
  }
  for (const GradientEdge& edge : backward.outgoing) {
    if (group.to_function(edge.to)) continue;
    if (const auto handed = handed_gradient(step, backward, edge.to)) {
      group.handed.push_back(*handed);
    } else {
      group.broken = named(step.graph(), function(edge.to).function) +
                     " takes gradients that are summed in another order";
    }
  }
}

}  // namespace

const HandedGradient* FusedGroup::to_function(std::int32_t to) const {
  const auto at = std::ranges::find(handed, to, &HandedGradient::to);
  return at == handed.end() ? nullptr : &*at;
}

void find_backward(const StepView& step, std::vector<FusedGroup>& groups) {
  const GroupOfNode group_of(step, groups);
  const std::vector<BackwardGroup> backward = backward_groups(step, group_of.ops(), groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    read_functions(step, backward[i], groups[i]);
    std::string open = open_part(step, groups[i], static_cast<std::int32_t>(i), group_of);
    if (!open.empty()) groups[i].broken = std::move(open);
  }
}

const HandedGradient* gradient_of(const StepView& step, const FusedGroup& group,
                                  const Version* version) {
  if (!version) return nullptr;
  const ExecutionGraph& graph = step.graph();
  for (const HandedGradient& handed : group.handed) {
    const BackwardFunction& to = step.backward().functions[handed.to];
    if (version->op >= 0) {
      if (step.forward().op_around(to.forward) == version->op) return &handed;
      continue;
    }
    // A parameter has no maker: an op that reads it hands over a gradient of its size.
    const std::int32_t reader =
        step.forward().op_around(step.backward().functions[handed.from].forward);
    if (to.accumulates() && contains(version->readers, reader) &&
        graph.tensors[handed.taken].numel == graph.tensors[version->tensor].numel) {
      return &handed;
    }
  }
  return nullptr;
}

namespace {

void write_function(GraphEdit& edit, const StepView& step, const FusedGroup& group,
                    const std::string& name, const WriteGradients& backward) {
  const ExecutionGraph& graph = step.graph();
  const BackwardFunction& first = step.backward().functions[group.functions.front()];
  GraphBuilder& builder = edit.builder();
  const auto in_source = [&](const Argument& argument) { return edit.copy().tensor(argument); };
  const TensorRef gradient = in_source(graph.inputs(first.function)[0]);
  edit.copy().begin_function(first, name, gradient, group.sequence);
  std::vector<TensorRef> parts;
  for (const HandedGradient& handed : group.handed) {
    const TensorRef part = builder.tensor_of_source(handed.first);
    parts.push_back(handed.sum < 0 ? builder.tensor_of_source(handed.taken)
                                   : builder.new_tensor(builder.dtype(part), builder.shape(part)));
  }
  backward(gradient, parts);
  builder.close();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const HandedGradient& handed = group.handed[i];
    if (handed.sum < 0) continue;
    builder.leaf_op(std::string(graph.name(handed.sum)) + ".Tensor",
                    {in_source(graph.inputs(handed.sum)[0]), parts[i], 1},
                    {builder.tensor_of_source(handed.taken)});
  }
  builder.close();
}

}  // namespace

void replace_group(GraphEdit& edit, const StepView& step, const FusedGroup& group,
                   const GraphEdit::Write& forward, const std::string& function,
                   const WriteGradients& backward) {
  for (const std::int32_t op : group.ops) edit.replace(op);
  edit.replace(group.ops.back(), [&edit, &group, forward] {
    edit.copy().close_beside(group.ops.back());
    forward();
  });
  const auto evaluate = [&](std::int32_t f) { return step.backward().functions[f].evaluate; };
  for (const std::int32_t f : group.functions) edit.replace(evaluate(f));
  if (group.functions.empty()) return;
  edit.replace(evaluate(group.functions.front()), [&edit, &step, &group, function, backward] {
    write_function(edit, step, group, function, backward);
  });
}

}  // namespace perfmodel
