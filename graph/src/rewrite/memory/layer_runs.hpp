#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// What makes two ops equal, with all that stands below them: names, and types and shapes of all
/// tensors.
struct OpSignature {
  std::uint64_t hash = 0;
  bool multiplies = false;  ///< holds a matrix product or a convolution
};
OpSignature op_signature(const ExecutionGraph& graph, std::int32_t op);

/// A stretch of a list of ops that repeats: ops [begin, begin + length), each equal to the one
/// `period` ops in front of it.
struct LayerRun {
  std::size_t begin = 0, length = 0, period = 0;
};

/// The layers of a forward pass: runs of at least two periods with a matrix product or a
/// convolution in each; the one that covers most, then what covers most in front of it and behind
/// it, and so on. In order. Linear in the number of ops.
std::vector<LayerRun> layer_runs(const std::vector<OpSignature>& ops);

/// Where the layer begins that ends in front of op `end` and does all that the layer at [begin,
/// begin + period) does, in that order, and some more ops, at most a quarter (T5's first decoder
/// layer makes a position bias for all others); `end`: there is none.
std::size_t longer_layer_before(const std::vector<OpSignature>& ops, std::size_t begin,
                                std::size_t period, std::size_t end);

}  // namespace perfmodel
