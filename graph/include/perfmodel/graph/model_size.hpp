#pragma once

#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Parameters and work of a model, found in one step of its graph.
struct ModelSize {
  /// Elements of all parameters that get a gradient: what AccumulateGrad nodes take (once each, so
  /// shared weights count once), and the weights of FBGEMM's batched tables. 0 without backward
  /// pass.
  std::int64_t parameters = 0;
  /// FLOP of matrix products and convolutions, forward and backward, multiply-add as 2. Recurrent
  /// library calls and attention kernels that hide their products are counted by their shapes.
  double matrix_flop = 0;
};

/// Sums up the first step of `graph`, recorded or built.
ModelSize model_size(const ExecutionGraph& graph);

}  // namespace perfmodel
