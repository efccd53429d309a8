#pragma once

#include <string>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Which parts of the forward pass are computed again in the backward pass.
struct CheckpointOptions {
  /// Every region whose name contains this text is a segment; empty: repeated layers are.
  std::string label;

  /// Layers per segment; 0: the square root of the number of layers. A layer is what repeats: runs
  /// of sibling ops of the forward pass that recur with the same names and shapes, with a matrix
  /// product or a convolution in each, begun where one tensor alone leaves and the next layer takes
  /// it. A first layer may do a few ops more.
  int every = 1;
};

/// The graph as the program would have been recorded with torch.utils.checkpoint around these
/// segments (use_reentrant=True, the default of PyTorch 1.13 and of 2.x with a warning):
///
/// - forward: a CheckpointFunction node around the segment, one sequence number for all of it;
/// - backward: CheckpointFunctionBackward restores the random state (two copies of the GPU's),
///   detaches the segment's inputs, runs the segment again under new numbers and its backward
///   functions inside itself, with the inputs' gradients accumulated as leaves. What several
///   segments send to one tensor is summed behind each of them.
///
/// Source: torch/utils/checkpoint.py and torch/csrc/autograd/input_buffer.cpp, 1.13 and 2.x;
/// recordings of 1.13 on a CPU. Recomputed ops get numbers behind the last one of the graph;
/// PyTorch counts per thread. Masks and the like are taken as captured, not as inputs.
///
/// Preconditions (kImpossible): a backward pass, of one step; no checkpoints yet; segments found,
/// each with one tensor with a gradient that goes out and at least one that comes in and is not
/// written into; its backward functions ran one after the other; its parameters are its own.
Result<ExecutionGraph> rewrite_checkpointing(const ExecutionGraph& graph,
                                             const CheckpointOptions& options);

}  // namespace perfmodel
