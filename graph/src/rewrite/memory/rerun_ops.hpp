#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "step/step_view.hpp"

namespace perfmodel {

/// Ops of the forward pass that a backward function runs once more before it reads what they make.
struct Rerun {
  std::vector<std::int32_t> nodes;  ///< in order, each with all that stands below it
  std::int32_t function = -1;       ///< into BackwardPass::functions
};

/// The region around such ops. Nothing records one; rewrites that must come first find it.
inline constexpr std::string_view kRecomputeRegion = "CheckpointFunctionRecompute";

/// Writes them, without numbers of autograd's, in a region inside of the function. It and all that
/// run behind it read the new tensors. Dropout multiplies by the mask of the forward pass.
ExecutionGraph write_reruns(const StepView& step, const std::vector<Rerun>& reruns);

}  // namespace perfmodel
