#include "concat.hpp"
#include "memory.hpp"
#include "optimizer_kinds.hpp"
#include "pointwise.hpp"
#include "update.hpp"

namespace perfmodel {
namespace {

TensorRef norm(GraphBuilder& graph, TensorRef x) {
  const TensorRef made = graph.new_tensor(graph.dtype(x), graph.device(x), {});
  graph.leaf_op("aten::linalg_vector_norm", {x, 2.0, kNone, false, kNone}, {made});
  return made;
}

// clip_grad_norm_ of one gradient. Before 1.10 the host asks whether the factor is below 1, so it
// waits for the GPU; the norm of all gradients is at most 1 already, so nothing is scaled. Later
// versions always scale and do not wait.
void clip_alone(GraphBuilder& graph, TensorRef gradient) {
  const TensorRef total = norm(graph, stack(graph, {norm(graph, gradient)}, 0));
  // PyTorch divides a number by a tensor as reciprocal times number.
  const TensorRef inverse = reciprocal(graph, add_number(graph, total));
  const TensorRef factor = mul_number(graph, inverse, DType::kFloat64);
  if (graph.pytorch().before(1, 10)) {
    const TensorRef is_large = graph.new_tensor(DType::kBool, graph.device(factor), {});
    graph.leaf_op("aten::lt.Scalar", {factor, 1.0}, {is_large});
    item(graph, is_large, false);
  } else {
    const TensorRef clamped = like(graph, factor);
    graph.leaf_op("aten::clamp", {factor, kNone, 1.0}, {clamped});
    mul_(graph, gradient, clamped);
  }
}

}  // namespace

// BertAdam of pytorch_pretrained_bert, which NVIDIA's examples of BERT take in fp32: each gradient
// is clipped alone, means are not corrected, and weights decay through the update.
void emit_bert_adam(GraphBuilder& graph, const OptimizerSettings& settings,
                    const std::vector<ParameterUpdate>& updates) {
  for (const ParameterUpdate& update : updates) {
    clip_alone(graph, update.gradient);
    mul_number_(graph, update.first);
    add_scaled_(graph, update.first, update.gradient, 1 - settings.beta1);
    mul_number_(graph, update.second);
    addcmul_(graph, update.second, update.gradient, update.gradient, 1 - settings.beta2);
    const TensorRef root = add_number(graph, sqrt(graph, update.second));
    const TensorRef change = div(graph, update.first, root);
    const bool decays = graph.shape(update.parameter).size() > 1;  // no biases, no norms
    if (decays) add_(graph, change, mul_number(graph, update.parameter, DType::kFloat64));
    add_(graph, update.parameter, neg(graph, mul_number(graph, change, DType::kFloat64)));
  }
}

}  // namespace perfmodel
