#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel::suite {

/// Load of a graph's kernels on the GPU's pipes: seconds at peak rate, multiply-add as 2 FLOP.
/// Convolutions count as if computed directly, whatever algorithm runs.
struct PipeWork {
  double fp32_s = 0;    ///< kernels that compute in fp32 without matrix units
  double matrix_s = 0;  ///< kernels on matrix units, each at the peak of its type
};
PipeWork pipe_work(const ExecutionGraph& graph, const Gpu& gpu);

}  // namespace perfmodel::suite
