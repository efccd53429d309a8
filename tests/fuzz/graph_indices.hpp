#pragma once

#include "fuzz.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel::fuzz {

/// Indices lie in their pools.
inline void check_indices(const ExecutionGraph& graph) {
  const auto nodes = static_cast<std::int32_t>(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    PERFMODEL_CHECK(node.parent >= -1 && node.parent < nodes);
    PERFMODEL_CHECK(std::size_t{node.inputs_begin} + node.inputs_count <= graph.arguments.size());
    PERFMODEL_CHECK(std::size_t{node.outputs_begin} + node.outputs_count <= graph.arguments.size());
    for (const std::int32_t child : graph.children(node)) {
      PERFMODEL_CHECK(child >= 0 && child < nodes);
    }
    for_each_tensor(graph, graph.inputs(node), [&graph](const Tensor& tensor) {
      PERFMODEL_CHECK(tensor.shape_begin + std::size_t{tensor.rank} <= graph.shape_pool.size());
    });
  }
}

}  // namespace perfmodel::fuzz
