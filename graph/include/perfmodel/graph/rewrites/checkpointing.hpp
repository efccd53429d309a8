#pragma once

#include <string>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Which parts of the forward pass are computed again in the backward pass.
struct CheckpointOptions {
  /// Every region whose name contains this text is a segment; empty: repeated layers are.
  std::string label;

  /// Layers per segment; 0: the square root of the number of layers. A layer is what repeats: the
  /// longest run of sibling ops of the forward pass that recurs with the same names and shapes,
  /// begun where one tensor alone goes from layer to layer.
  int every = 1;
};

/// The graph as the program would have been recorded with torch.utils.checkpoint around these
/// segments (use_reentrant=True, the default of PyTorch 1.13 and of 2.x with a warning):
///
/// - forward: a CheckpointFunction node around the segment, one sequence number for all of it;
/// - backward: CheckpointFunctionBackward restores the random state (two copies of the GPU's),
///   detaches the segment's inputs, runs the segment again under new numbers and its backward
///   functions inside itself, with the inputs' gradients accumulated as leaves.
///
/// Recomputed ops get numbers behind the last one of the graph; PyTorch counts per thread.
///
/// Preconditions (kImpossible): a backward pass; no checkpoints yet; segments found, each with one
/// tensor that goes out and at least one with a gradient that comes in; the gradient of an input
/// comes from one segment alone; parameters are used in one segment.
Result<ExecutionGraph> rewrite_checkpointing(const ExecutionGraph& graph,
                                             const CheckpointOptions& options);

}  // namespace perfmodel
