#include "builders/emit/memory.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, mask, scale): in
// fp32 a GPU takes the memory-efficient kernel. Half types would take FlashAttention: refused.
void attention(Retargeter& rewrite, std::int32_t node) {
  const Tensor* query = rewrite.input_entry(node, 0);
  if (!query || query->dtype != DType::kFloat32 || !rewrite.output_entry(node, 1)) {
    return rewrite.copy(node);
  }
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  GraphBuilder& graph = rewrite.graph();
  const std::int64_t sequence = rewrite.source().node(node).seq_id;
  Retargeter::Attention kept;
  for (TensorRef* number : {&kept.seed, &kept.offset}) {
    *number = graph.new_tensor(DType::kInt64, {});
  }
  graph.leaf_op(
      "aten::_scaled_dot_product_efficient_attention",
      {rewrite.input(node, 0), rewrite.input(node, 1), rewrite.input(node, 2),
       rewrite.input(node, 5), sequence >= 0, rewrite.input(node, 3), rewrite.input(node, 4),
       rewrite.input(node, 6)},
      {rewrite.output_tensor(node, 0), rewrite.output_tensor(node, 1), kept.seed, kept.offset},
      sequence);
  rewrite.attentions[sequence] = kept;
  rewrite.rename_backward(sequence, "ScaledDotProductEfficientAttentionBackward0");
}

// (gradient, query, key, value, out, logsumexp, dropout, causal, mask, scale)
void attention_backward(Retargeter& rewrite, std::int32_t node) {
  const std::int32_t function = rewrite.source().node(node).parent;
  const auto kept =
      rewrite.attentions.find(function < 0 ? -1 : rewrite.source().node(function).seq_id);
  if (kept == rewrite.attentions.end()) return rewrite.copy(node);
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  GraphBuilder& graph = rewrite.graph();
  const bool mask = rewrite.given(node, 8);
  const TensorRef bias = mask ? rewrite.input_tensor(node, 8) : graph.undefined();
  graph.leaf_op(
      "aten::_scaled_dot_product_efficient_attention_backward",
      {rewrite.input(node, 0), rewrite.input(node, 1), rewrite.input(node, 2),
       rewrite.input(node, 3), bias, rewrite.input(node, 4), rewrite.input(node, 5),
       kept->second.seed, kept->second.offset, rewrite.input(node, 6),
       Value::List{true, true, true, false}, rewrite.input(node, 7), rewrite.input(node, 9)},
      {rewrite.output_tensor(node, 0), rewrite.output_tensor(node, 1),
       rewrite.output_tensor(node, 2), graph.undefined()});
}

}  // namespace

std::span<const NamedRetargetRule> attention_retarget_rules() {
  static constexpr NamedRetargetRule kRules[] = {
      {"attention", attention},
      {"attention_backward", attention_backward},
  };
  return kRules;
}

}  // namespace perfmodel
