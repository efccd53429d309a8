#pragma once

#include <string>
#include <vector>

#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "step/segment.hpp"

namespace perfmodel {

/// Finds them and checks the preconditions of rewrite_checkpointing(). In order of the forward
/// pass.
Result<std::vector<Segment>> checkpoint_segments(const StepView& step,
                                                 const CheckpointOptions& options);

/// The same around parts of the forward pass. Parts that cannot be segments are left out. If no
/// part can be one, the error says why the first cannot.
Result<std::vector<Segment>> checkpoint_segments(const StepView& step,
                                                 const std::vector<Trees>& parts);

/// By node: part of the first layers. All nodes are where no number is given.
Result<std::vector<bool>> nodes_of_layers(const StepView& step, FirstLayers layers);

/// An error of this rewrite.
Unexpected refuse_checkpointing(std::string message);

}  // namespace perfmodel
