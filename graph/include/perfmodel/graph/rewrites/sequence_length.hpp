#pragma once

#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct SequenceLengthOptions {
  std::int64_t length = 1;   ///< tokens per sample, at least 1
  std::int64_t current = 0;  ///< the length to replace; 0: inferred from the inputs
};

/// The same step with sequences of another length, by the rules of set_batch_size(): S x S scores
/// grow with the square, tables of positions stay and are cut elsewhere.
///
/// Inferred: the second dimension of inputs of integers with two dimensions, else of inputs of
/// floats with three. Errors: as there; steps that are unrolled (one op per token) cannot be
/// changed.
Result<ExecutionGraph> set_sequence_length(const ExecutionGraph& graph,
                                           const SequenceLengthOptions& options);

}  // namespace perfmodel
