#pragma once

#include <vector>

#include "checkpoint_segments.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// The checks that rewrites which recompute activations ask for.
inline constexpr StepNeeds kRecomputationNeeds = {
    .no_offload = true, .no_checkpoints = true, .eager = true, .backward = true};

/// The values that checkpoints keep instead of computing them again.
struct KeptInside {
  bool masks = false;     ///< dropout masks
  bool products = false;  ///< results of every second matrix product and of attention
};

/// Puts torch.utils.checkpoint around the segments, see rewrite_checkpointing().
ExecutionGraph write_checkpoints(const StepView& step, const std::vector<Segment>& segments,
                                 KeptInside kept);

}  // namespace perfmodel
