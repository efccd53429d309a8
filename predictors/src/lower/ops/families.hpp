#pragma once

#include "perfmodel/predictors/detail/op_rules.hpp"

/// One function per op family, called from `builtin_op_rules.cpp`.
namespace perfmodel::ops {

void add_attention(OpRuleRegistry& registry);
void add_collective(OpRuleRegistry& registry);
void add_concat(OpRuleRegistry& registry);
void add_convolution(OpRuleRegistry& registry);
void add_copy(OpRuleRegistry& registry);
void add_detection(OpRuleRegistry& registry);
void add_ctc(OpRuleRegistry& registry);
void add_elementwise(OpRuleRegistry& registry);
void add_embedding(OpRuleRegistry& registry);
void add_fbgemm(OpRuleRegistry& registry);
void add_foreach(OpRuleRegistry& registry);
void add_gemm(OpRuleRegistry& registry);
void add_index(OpRuleRegistry& registry);
void add_loss(OpRuleRegistry& registry);
void add_no_launch(OpRuleRegistry& registry);
void add_norm(OpRuleRegistry& registry);
void add_pooling(OpRuleRegistry& registry);
void add_recurrent(OpRuleRegistry& registry);
void add_reduction(OpRuleRegistry& registry);
void add_softmax(OpRuleRegistry& registry);
void add_sort(OpRuleRegistry& registry);
void add_triton(OpRuleRegistry& registry);

}  // namespace perfmodel::ops
