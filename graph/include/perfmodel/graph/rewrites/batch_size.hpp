#pragma once

#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct BatchSizeOptions {
  std::int64_t batch = 1;    ///< samples per step, at least 1
  std::int64_t current = 0;  ///< the size to replace; 0: inferred from the inputs
};

/// The same step with another batch. Sizes are followed from the inputs of the step through every
/// op (never matched by value): flattened [B * S, H], offsets [T * B + 1], numbers of lookups (in
/// proportion, rounded), sizes and strides among arguments, splits of all-to-alls. Graphs of one
/// batch size stay as they are, byte for byte.
///
/// Inferred: the first dimension of inputs of floats that are copied to the GPU (of all inputs
/// where none is copied), else of inputs of integers with two dimensions.
///
/// Errors: inputs that disagree or have no batch, an op without a rule that meets the batch, sizes
/// that must be equal and would not be, sizes below 1 or beyond 2^40.
Result<ExecutionGraph> set_batch_size(const ExecutionGraph& graph, const BatchSizeOptions& options);

/// Samples per step, as set_batch_size() infers them, with its errors.
Result<std::int64_t> batch_size(const ExecutionGraph& graph);

}  // namespace perfmodel
