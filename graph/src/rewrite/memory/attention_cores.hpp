#pragma once

#include <cstdint>
#include <vector>

#include "step/step_view.hpp"

namespace perfmodel {

/// Attention in ops of its own: two batched products with a softmax between. Nodes of the forward
/// pass.
struct AttentionCore {
  std::int32_t scores = -1;   ///< product of queries and keys
  std::int32_t softmax = -1;  ///< `aten::_softmax`
  std::int32_t dropout = -1;  ///< `aten::native_dropout`; -1: none
  std::int32_t values = -1;   ///< product with the values
};

/// In order of the forward pass.
std::vector<AttentionCore> attention_cores(const StepView& step);

/// The first attention op that computes all of it in one kernel; -1: none.
std::int32_t fused_attention_op(const ExecutionGraph& graph);

}  // namespace perfmodel
