#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// One function that autograd's engine ran.
struct BackwardFunction {
  std::int32_t evaluate = -1;  ///< its "autograd::engine::evaluate_function" node
  std::int32_t function = -1;  ///< the node of scope 1 inside
  std::int64_t sequence = -1;  ///< -1: accumulates the gradient of a parameter
  std::int32_t forward = -1;   ///< the op whose gradient it computes, -1: none found
  bool accumulates() const { return sequence < 0; }
};

/// A gradient on its way from the function that made it to the one that takes it.
struct GradientEdge {
  std::int32_t from = -1, to = -1;  ///< into BackwardPass::functions
  std::uint32_t tensor = 0;         ///< as `from` hands it over; into ExecutionGraph::tensors
  std::int32_t sum = -1;            ///< node that adds it to earlier gradients, -1: it is the first
};

/// The work of autograd in a graph, from tensor ids and sequence numbers.
struct BackwardPass {
  std::vector<BackwardFunction> functions;  ///< in the order in which they ran
  std::vector<GradientEdge> edges;          ///< in the order in which gradients were taken

  /// Forward nodes: sequence number of the recorded op that made each input tensor, -1 if none did;
  /// in the order of for_each_tensor. Empty for nodes of the backward pass.
  std::vector<std::vector<std::int64_t>> input_producers;
  std::vector<bool> in_backward;  ///< per node: part of a function
  std::int64_t last_sequence = -1;
};

/// An optional tensor that was not given. All of a process have one id, so it tells nothing.
inline bool is_undefined(const Tensor& tensor) {
  return tensor.dtype == DType::kUnknown && tensor.storage_id == 0;
}

bool is_evaluate_function(const ExecutionGraph& graph, const Node& node);

BackwardPass backward_pass(const ExecutionGraph& graph);

/// The first node of the backward pass, else the number of nodes.
std::int32_t forward_end(const BackwardPass& pass);
/// Functions that do not accumulate, by autograd's number.
std::map<std::int64_t, std::int32_t> functions_by_sequence(const BackwardPass& pass);
/// The gradients that a function takes.
std::span<const GradientEdge> edges_to(const BackwardPass& pass, std::int32_t function);

}  // namespace perfmodel
