#include "builders/emit/memory.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

constexpr const char* kEfficientAttention = "ScaledDotProductEfficientAttentionBackward0";

std::vector<Value> arguments_at(const CpuOp& op, std::initializer_list<std::size_t> positions) {
  std::vector<Value> inputs;
  for (const std::size_t position : positions) inputs.push_back(op.argument(position));
  return inputs;
}

}  // namespace

// _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, mask, scale): in
// fp32 a GPU takes the memory-efficient kernel. Half types would take FlashAttention: refused.
void retarget_attention(const CpuOp& op) {
  const Tensor* query = op.input(0);
  if (!query || query->dtype != DType::kFloat32 || !op.output(1)) return;
  KeptForBackward& kept = op.keep(kEfficientAttention);
  op.replace([op, &kept](GraphBuilder& graph) {
    const TensorRef seed = graph.new_tensor(DType::kInt64, {});
    const TensorRef offset = graph.new_tensor(DType::kInt64, {});
    std::vector<Value> inputs = arguments_at(op, {0, 1, 2, 5, 3, 4, 6});
    inputs.insert(inputs.begin() + 4, op.sequence() >= 0);  // computes logsumexp
    graph.leaf_op("aten::_scaled_dot_product_efficient_attention", std::move(inputs),
                  {op.result(0), op.result(1), seed, offset}, op.sequence());
    kept.tensors = {seed, offset};
  });
}

// (gradient, query, key, value, out, logsumexp, dropout, causal, mask, scale)
void retarget_attention_gradient(const CpuOp& op) {
  const KeptForBackward* kept = op.kept_around(kEfficientAttention);
  if (!kept) return;
  op.replace([op, kept](GraphBuilder& graph) {
    std::vector<Value> inputs = arguments_at(op, {0, 1, 2, 3, 4, 5});
    const TensorRef none = graph.undefined();
    inputs.insert(inputs.begin() + 4, op.given(8) ? op.tensor(8) : none);
    inputs.insert(inputs.end(),
                  {kept->tensors[0], kept->tensors[1], op.argument(6),
                   Value::List{true, true, true, false}, op.argument(7), op.argument(9)});
    graph.leaf_op("aten::_scaled_dot_product_efficient_attention_backward", std::move(inputs),
                  {op.result(0), op.result(1), op.result(2), none});
  });
}

}  // namespace perfmodel
