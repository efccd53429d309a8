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
/// A trace does not say which tensors are the same. In a graph made from one, places and values of
/// sizes decide what grows (rewrite/traced_batch.hpp); a warning of the graph says so.
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

inline constexpr double kMostZipfExponent = 10;

/// The indices of all lookups in embedding tables, and of their backward passes, follow Zipf's law:
/// row k is read with a probability proportional to k^-exponent; 0: all rows alike. A graph does
/// not tell which rows were read, only how many: without this rewrite all are alike. Kept in
/// Node::index_zipf_exponent and in the file; caches and distinct rows are priced accordingly
/// (docs/embedding.md).
///
/// Errors: an exponent that is no number from 0 to kMostZipfExponent, a graph without lookups.
Result<ExecutionGraph> set_index_skew(const ExecutionGraph& graph, double exponent);

}  // namespace perfmodel
