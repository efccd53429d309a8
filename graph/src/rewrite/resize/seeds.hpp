#pragma once

#include <span>

#include "perfmodel/graph/rewrites/resize.hpp"
#include "tracker.hpp"

namespace perfmodel::resize {

constexpr std::int64_t kLargestSize = std::int64_t{1} << 40;

enum class Symbol { kBatch, kSequence };

/// Which dimensions of the inputs are the batch or the sequence, and its size in the graph.
///
/// Batch: the first dimension of the inputs of floats (those copied from the host, where there are
/// any; not parameters, not states), else of inputs of integers with two dimensions. Sequence: the
/// second one of inputs of integers with two dimensions, else of floats with three. Before a
/// recurrent layer that wants steps in front, or a loop over steps (`unbind`), the two change
/// places. `given`: the size that the caller names, 0 for none.
///
/// Errors: no input has such a dimension, inputs disagree, none has the given size.
Result<Seeds> find_seeds(const ExecutionGraph& graph, const std::vector<External>& externals,
                         Symbol symbol, std::int64_t given);

/// The size that the inputs of the graph have now. Errors: as find_seeds().
Result<std::int64_t> current_size(const ExecutionGraph& graph, Symbol symbol);

/// The seeds that the caller names instead. Errors: no such input or dimension, a parameter,
/// dimensions of several sizes or of another than `given`.
Result<Seeds> named_seeds(const ExecutionGraph& graph, const std::vector<External>& externals,
                          std::int64_t given, std::span<const BatchInput> inputs);

/// Changes the sizes; both rewrites use it. `inputs`: empty if they are to be found.
Result<ExecutionGraph> resized(const ExecutionGraph& graph, Symbol symbol, std::int64_t given,
                               std::int64_t wanted, std::span<const BatchInput> inputs = {});

struct TwiceTheBatch {
  std::int64_t batch = 0;  ///< as it is
  Result<ExecutionGraph> graph;
};
/// The same as `current_size` and `resized` to twice as much, in one walk less.
Result<TwiceTheBatch> twice_the_batch(const ExecutionGraph& graph);

}  // namespace perfmodel::resize
