#pragma once

#include <optional>
#include <vector>

#include "fused_group.hpp"

namespace perfmodel {

/// A norm of the last axis in single ops.
struct UnfusedNorm {
  bool is_rms = false;
  const Version *x = nullptr, *weight = nullptr, *bias = nullptr;
  std::optional<double> eps = {};
  FusedGroup group = {};
};

/// RMS and layer norms whose ops are in the forward pass, without their backward pass.
std::vector<UnfusedNorm> find_unfused_norms(const StepView& step);

}  // namespace perfmodel
