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

/// The same for the inputs of a node and then for its outputs.
template <class Change>
void change_tensors(ExecutionGraph& graph, const Node& node, Change&& change) {
  const Node of = node;  // the call may move the nodes
  change_tensors(graph, of.inputs_begin, of.inputs_count, change);
  change_tensors(graph, of.outputs_begin, of.outputs_count, change);
}

/// Calls `change(source's mention, Tensor& copy's)` for `count` arguments of a node and of its
/// copy.
template <class Change>
void change_copied_tensors(const ExecutionGraph& source, std::uint32_t from, ExecutionGraph& made,
                           std::uint32_t to, std::uint32_t count, Change&& change) {
  for (std::uint32_t i = 0; i < count; ++i) {
    const Argument original = source.arguments[from + i], copy = made.arguments[to + i];
    if (original.kind == Argument::Kind::kTensor) {
      change(source.tensors[original.index], made.tensors[copy.index]);
    } else if (original.kind == Argument::Kind::kList) {
      change_copied_tensors(source, original.index, made, copy.index, original.count, change);
    }
  }
}

/// The same for the inputs of a node and its copy and then for their outputs.
template <class Change>
void change_copied_tensors(const ExecutionGraph& source, const Node& node, ExecutionGraph& made,
                           const Node& copy, Change&& change) {
  change_copied_tensors(source, node.inputs_begin, made, copy.inputs_begin, node.inputs_count,
                        change);
  change_copied_tensors(source, node.outputs_begin, made, copy.outputs_begin, node.outputs_count,
                        change);
}

/// Makes a mention one of another tensor, or of another part of a storage.
inline void take_place(Tensor& mention, const Tensor& by) {
  mention.id = by.id;
  mention.storage_id = by.storage_id;
  mention.offset = by.offset;
}

}  // namespace perfmodel
