#include "builders/emit/memory.hpp"
#include "builders/emit/views.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// Positions in the arguments of aten::_batch_norm_impl_index.
enum : std::size_t {
  kNormInput,
  kNormWeight,
  kNormBias,
  kNormMean,
  kNormVariance,
  kNormTraining,
  kNormMomentum,
  kNormEpsilon
};

TensorRef no_bytes(GraphBuilder& graph) { return empty(graph, DType::kUInt8, {0}); }

// The weights are looked at in the shape of the library's descriptor.
void view_channels(GraphBuilder& graph, TensorRef weight, std::size_t rank) {
  Shape shape(std::max<std::size_t>(rank, 4), 1);
  shape[1] = graph.numel(weight);
  view(graph, weight, shape);
}

// _batch_norm_impl_index returns (out, mean, inverse deviation, reserve, which backend).
void batch_norm(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  const std::int32_t native = rewrite.child(node, "aten::native_batch_norm");
  // Both libraries want weights and, unless they train, statistics.
  const bool library =
      native >= 0 && rewrite.given(node, kNormWeight) && rewrite.given(node, kNormBias) &&
      (rewrite.given(node, kNormMean) || rewrite.integer(node, kNormTraining) != 0);
  if (!library) return;
  rewrite.leave_out_children(node);
  GraphBuilder& graph = rewrite.graph();
  ExecutionGraph& made = graph.graph_being_made();
  const Node& copied = made.nodes.back();
  if (copied.outputs_count == 5) {
    made.arguments[copied.outputs_begin + 4].integer = rewrite.amd() ? 2 : 1;
  }
  const std::int64_t sequence = rewrite.source().node(native).seq_id;
  std::vector<Value> inputs;
  for (std::size_t i = kNormInput; i <= kNormEpsilon; ++i) inputs.push_back(rewrite.input(node, i));
  const TensorRef x = rewrite.input_tensor(node, kNormInput), out = rewrite.output_tensor(node, 0);
  const TensorRef mean = rewrite.output_tensor(node, 1), deviation = rewrite.output_tensor(node, 2);
  if (rewrite.amd()) {
    graph.begin_op("aten::miopen_batch_norm", std::move(inputs), sequence);
    allocate(graph, out, {.order = true});
    allocate(graph, mean);
    allocate(graph, deviation);
    graph.end_op({out, mean, deviation});
    return rewrite.rename_backward(sequence, "MiopenBatchNormBackward0");
  }
  graph.begin_op("aten::cudnn_batch_norm", std::move(inputs), sequence);
  allocate_like(graph, out, x);
  view_channels(graph, rewrite.input_tensor(node, kNormWeight), graph.shape(x).size());
  allocate(graph, mean);
  allocate(graph, deviation);
  no_bytes(graph);  // workspace
  const TensorRef reserve = rewrite.output_tensor(node, 3);
  allocate(graph, reserve);
  graph.end_op({out, mean, deviation, reserve});
  rewrite.norm_reserves.insert_or_assign(sequence, reserve);
  rewrite.rename_backward(sequence, "CudnnBatchNormBackward0");
}

// native_batch_norm_backward(gradient, input, weight, running mean, running variance, mean,
// inverse deviation, training, epsilon, mask)
void batch_norm_backward(Retargeter& rewrite, std::int32_t node) {
  const std::int32_t function = rewrite.source().node(node).parent;
  const std::int64_t sequence = function < 0 ? -1 : rewrite.source().node(function).seq_id;
  const auto reserve = rewrite.norm_reserves.find(sequence);
  const bool library = rewrite.integer(node, 7) != 0 && rewrite.given(node, 2) &&
                       (rewrite.amd() || reserve != rewrite.norm_reserves.end());
  if (!library) return rewrite.copy(node);  // the same kernels on both devices
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  GraphBuilder& graph = rewrite.graph();
  std::vector<Value> inputs;
  for (std::size_t i : {1, 0, 2, 3, 4, 5, 6, 8}) inputs.push_back(rewrite.input(node, i));
  if (!rewrite.amd()) inputs.push_back(reserve->second);
  graph.begin_op(
      rewrite.amd() ? "aten::miopen_batch_norm_backward" : "aten::cudnn_batch_norm_backward",
      std::move(inputs));
  std::vector<Value> outputs;
  for (std::size_t i = 0; i < 3; ++i) {
    const TensorRef out = rewrite.output_tensor(node, i);
    allocate(graph, out, {.order = i == 0});
    outputs.push_back(out);
  }
  if (!rewrite.amd()) {
    const TensorRef x = rewrite.input_tensor(node, 1);
    view_channels(graph, rewrite.input_tensor(node, 2), graph.shape(x).size());
    no_bytes(graph);
  }
  graph.end_op(std::move(outputs));
}

// A CPU adds the gradients of weight and bias up in a buffer per thread.
void layer_norm_backward(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  for (std::int32_t child : rewrite.children(node)) {
    const Tensor* made = rewrite.output_entry(child, 0);
    bool result = rewrite.name(child) == "aten::contiguous";
    for (std::size_t i = 0; made && i < 3; ++i) {
      const Tensor* out = rewrite.output_entry(node, i);
      result |= out && out->id == made->id && made->numel == out->numel;
    }
    if (!result) rewrite.leave_out(child);
  }
}

}  // namespace

std::span<const NamedRetargetRule> norm_retarget_rules() {
  static constexpr NamedRetargetRule kRules[] = {
      {"batch_norm", batch_norm},
      {"batch_norm_backward", batch_norm_backward},
      {"layer_norm_backward", layer_norm_backward},
  };
  return kRules;
}

}  // namespace perfmodel
