#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention_sites.hpp"
#include "builders/emit/attention.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "step/backward_groups.hpp"

namespace perfmodel {

/// How an attention is written anew.
struct AttentionPlan {
  AttentionSite site = {};
  BackwardGroup backward = {};
  FusedAttention options = {};             ///< without the mask
  std::optional<AttentionMask> mask = {};  ///< read by the kernel
  bool mask_has_gradient = false;
};

struct AttentionPlans {
  std::vector<AttentionPlan> plans = {};   ///< none: all attention runs in the kernel already
  std::vector<std::string> warnings = {};  ///< masks that are left out, attention that stays
};

/// Fails if a kernel can take none of the attention of a step; `warnings` say what it cannot take
/// of some.
Result<AttentionPlans> plan_attention(const StepView& step, AttentionBackend kernel);

}  // namespace perfmodel
