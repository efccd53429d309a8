#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/graph/rewrites/training.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {

/// The gradient of one input of a segment: all that the segment's functions send to one of those
/// that stand outside, in the order in which it is summed. At least one.
struct InputGradient {
  std::vector<GradientEdge> edges;
  std::int32_t sum_before = -1;  ///< adds the first one to what came from elsewhere; -1: nothing
};

/// A stretch of the forward pass that becomes a checkpoint.
struct Segment {
  std::vector<std::int32_t> trees;       ///< sibling nodes, with all that stands below them
  std::vector<std::uint32_t> inputs;     ///< tensors with a gradient that come in, at their use
  std::uint32_t output = 0;              ///< the one that goes out, at its use
  std::int64_t first = -1, behind = -1;  ///< sequence numbers inside: [first, behind)
  std::int32_t functions_begin = 0;      ///< into BackwardPass::functions: those of the segment
  std::int32_t functions_end = 0;        ///< and of its parameters' gradients
  std::vector<InputGradient> gradients;  ///< ordered by the function that sends the last part
};

/// Finds them and checks the preconditions of rewrite_checkpointing(). In order of the forward
/// pass.
Result<std::vector<Segment>> checkpoint_segments(const ExecutionGraph& graph,
                                                 const BackwardPass& pass,
                                                 const CheckpointOptions& options);

/// The same around parts of the forward pass: sibling nodes, in order. Parts that cannot be
/// segments are left out; where none can, the error is that of the first.
Result<std::vector<Segment>> checkpoint_segments(
    const ExecutionGraph& graph, const BackwardPass& pass,
    const std::vector<std::vector<std::int32_t>>& parts);

/// An error of this rewrite.
Unexpected refuse_checkpointing(std::string message);

}  // namespace perfmodel
