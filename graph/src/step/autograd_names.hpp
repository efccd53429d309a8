#pragma once

#include <string_view>

namespace perfmodel {

/// Prefix of a backward node's name where the engine runs it.
inline constexpr std::string_view kEvaluate = "autograd::engine::evaluate_function: ";
inline constexpr std::string_view kAccumulate = "torch::autograd::AccumulateGrad";
inline constexpr std::string_view kCheckpointBackward = "CheckpointFunctionBackward";

}  // namespace perfmodel
