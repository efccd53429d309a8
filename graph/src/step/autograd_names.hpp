#pragma once

#include <string_view>

namespace perfmodel {

/// What PyTorch puts before the name of a backward node where the engine runs it.
inline constexpr std::string_view kEvaluate = "autograd::engine::evaluate_function: ";
inline constexpr std::string_view kAccumulate = "torch::autograd::AccumulateGrad";
inline constexpr std::string_view kCheckpointBackward = "CheckpointFunctionBackward";

}  // namespace perfmodel
