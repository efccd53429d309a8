#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "segment.hpp"

namespace perfmodel {

/// Two ops are equal if, with all nodes below them, names and the types and shapes of all tensors
/// are.
struct OpSignature {
  std::uint64_t hash = 0;
  bool multiplies = false;  ///< holds a matrix product or a convolution
};
OpSignature op_signature(const ExecutionGraph& graph, std::int32_t op);

/// A stretch of a list of ops that repeats: ops [begin, begin + length), each equal to the one
/// `period` ops before it.
struct Repetition {
  std::size_t begin = 0, length = 0, period = 0;
};

/// Stretches of at least two periods with a matrix product or a convolution in each: the one that
/// covers most, then the one that covers most before it and after it, and so on. In order. Linear
/// in the number of ops.
std::vector<Repetition> repetitions(const std::vector<OpSignature>& ops);

/// Layers in which each takes the result of the one before it.
using LayerStack = std::vector<Trees>;

/// The layers of the forward pass: a layer is a segment that repeats. It begins at the op from
/// which most of a stretch of repeated ops makes segments; the first layer of a stack may do a few
/// ops more. Fails if there is none, with the reason of the first stretch.
Result<std::vector<LayerStack>> layers(const StepView& step, const SegmentReader& segments);

}  // namespace perfmodel
