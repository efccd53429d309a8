#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A dimension of a tensor that no op of the graph makes.
struct BatchInput {
  std::int64_t tensor = 0;  ///< its id in the graph
  int dim = 0;
};

struct BatchSizeOptions {
  std::int64_t batch = 1;    ///< samples per step, at least 1
  std::int64_t current = 0;  ///< the size to replace; 0: inferred from the inputs
  /// What of the inputs is the batch, where it cannot be inferred: these dimensions and no others.
  std::vector<BatchInput> inputs = {};
};

/// The same step with another batch. Sizes are followed from the inputs of the step through every
/// op (never matched by value): flattened [B * S, H], offsets [T * B + 1], numbers of lookups (in
/// proportion, rounded), sizes and strides among arguments, splits of all-to-alls. Graphs of one
/// batch size stay as they are, byte for byte.
///
/// Inferred: the first dimension of inputs of floats that are copied to the GPU (of all inputs
/// where none is copied), else of inputs of integers with two dimensions.
///
/// Errors: inputs that disagree or have no batch, named inputs that the graph does not have, an op
/// without a rule that meets the batch, sizes that must be equal and would not be (then the inputs
/// that may be meant are listed), sizes below 1 or beyond 2^40.
Result<ExecutionGraph> set_batch_size(const ExecutionGraph& graph, const BatchSizeOptions& options);

/// Samples per step, as set_batch_size() infers them, with its errors.
Result<std::int64_t> batch_size(const ExecutionGraph& graph);

}  // namespace perfmodel
