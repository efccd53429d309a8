#include "backward_groups.hpp"

namespace perfmodel {

std::vector<BackwardGroup> backward_groups(const StepView& step,
                                           std::span<const std::int32_t> group_of,
                                           std::size_t count) {
  std::vector<BackwardGroup> groups(count);
  std::vector<std::int32_t> group_of_function;
  for (const BackwardFunction& function : step.backward().functions) {
    const std::int32_t op = step.forward().op_around(function.forward);
    const std::int32_t group = op < 0 ? -1 : group_of[op];
    const auto index = static_cast<std::int32_t>(group_of_function.size());
    if (group >= 0) groups[group].functions.push_back(index);
    group_of_function.push_back(group);
  }
  for (const GradientEdge& edge : step.backward().edges) {
    const std::int32_t from = group_of_function[edge.from], to = group_of_function[edge.to];
    if (from == to) continue;
    if (from >= 0) groups[from].outgoing.push_back(edge);
    if (to >= 0) groups[to].incoming.push_back(edge);
  }
  return groups;
}

std::uint32_t taken_gradient(const ExecutionGraph& graph, const GradientEdge& edge) {
  if (edge.sum >= 0) {
    for (const Argument& argument : graph.outputs(edge.sum)) {
      if (argument.kind == Argument::Kind::kTensor) return argument.index;
    }
  }
  return edge.tensor;
}

}  // namespace perfmodel
