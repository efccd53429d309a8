#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The tensor at a position of the arguments or results of a node; null: no tensor there.
inline const Tensor* tensor_at(const ExecutionGraph& graph, std::span<const Argument> arguments,
                               std::size_t position) {
  const bool is_tensor =
      position < arguments.size() && arguments[position].kind == Argument::Kind::kTensor;
  return is_tensor ? &graph.tensors[arguments[position].index] : nullptr;
}

inline const Tensor* input_at(const ExecutionGraph& graph, std::int32_t node,
                              std::size_t position) {
  return tensor_at(graph, graph.inputs(node), position);
}
inline const Tensor* output_at(const ExecutionGraph& graph, std::int32_t node,
                               std::size_t position = 0) {
  return tensor_at(graph, graph.outputs(node), position);
}

/// Whether a node reads a tensor, alone or in a list.
inline bool takes(const ExecutionGraph& graph, std::int32_t node, const Tensor& tensor) {
  bool found = false;
  for_each_tensor(graph, graph.inputs(node),
                  [&](const Tensor& taken) { found |= taken.id == tensor.id; });
  return found;
}

/// The value of a number; none: the argument is none.
inline std::optional<double> number_of(const Argument& argument) {
  if (argument.kind == Argument::Kind::kDouble) return argument.real;
  if (argument.kind == Argument::Kind::kInt) return static_cast<double>(argument.integer);
  return std::nullopt;
}

}  // namespace perfmodel
