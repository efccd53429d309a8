#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {

/// `graph` as torch.autocast would have it, see rewrite_precision(); preconditions were checked.
/// `half`: kFloat16 or kBFloat16.
ExecutionGraph autocast_graph(const ExecutionGraph& graph, const BackwardPass& pass, DType half,
                              bool on_gpu, bool grad_scaler);

/// Per node: autocast has an eye on it, since it stands in the forward pass of its step and
/// computes on the device.
std::vector<bool> autocast_region(const ExecutionGraph& graph, const BackwardPass& pass,
                                  bool on_gpu);

}  // namespace perfmodel
