#pragma once

#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Calls `change(Tensor&)` for the tensors of `count` arguments from `begin` on, lists included.
template <class Change>
void change_tensors(ExecutionGraph& graph, std::uint32_t begin, std::uint32_t count,
                    Change&& change) {
  for (std::uint32_t i = begin; i < begin + count; ++i) {
    const Argument argument = graph.arguments[i];
    if (argument.kind == Argument::Kind::kTensor) {
      change(graph.tensors[argument.index]);
    } else if (argument.kind == Argument::Kind::kList) {
      change_tensors(graph, argument.index, argument.count, change);
    }
  }
}

/// The same for what a node takes and then for what it gives.
template <class Change>
void change_tensors(ExecutionGraph& graph, const Node& node, Change&& change) {
  const Node of = node;  // the call may move the nodes
  change_tensors(graph, of.inputs_begin, of.inputs_count, change);
  change_tensors(graph, of.outputs_begin, of.outputs_count, change);
}

}  // namespace perfmodel
