#include "builders/emit/memory.hpp"
#include "builders/emit/views.hpp"
#include "retarget_rules.hpp"
#include "rewrite/precision/native_batch_norms.hpp"

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

constexpr const char* kCudnnBackward = "CudnnBatchNormBackward0";

}  // namespace

// _batch_norm_impl_index returns (out, mean, inverse deviation, reserve, which backend).
void retarget_batch_norm(const CpuOp& op) {
  const std::int32_t native = op.child("aten::native_batch_norm");
  // Both libraries want weights and, unless they train, statistics.
  const Tensor* image = op.input(kNormInput);
  const bool library = native >= 0 && image && library_takes_batch_norm(image->dtype) &&
                       op.given(kNormWeight) && op.given(kNormBias) &&
                       (op.given(kNormMean) || op.integer(kNormTraining) != 0);
  if (!library) return;
  KeptForBackward& kept =
      op.at(native).keep(op.amd() ? "MiopenBatchNormBackward0" : kCudnnBackward);
  op.refill([op, &kept, sequence = op.at(native).sequence()](GraphBuilder& graph) {
    ExecutionGraph& made = graph.graph_being_made();
    const Node& copied = made.nodes.back();
    if (copied.outputs_count == 5) {
      made.arguments[copied.outputs_begin + 4].integer = op.amd() ? 2 : 1;
    }
    std::vector<Value> inputs;
    for (std::size_t i = kNormInput; i <= kNormEpsilon; ++i) {
      inputs.push_back(op.argument(i));
    }
    const TensorRef x = op.tensor(kNormInput);
    std::vector<TensorRef> results;
    for (std::size_t i = 0; i < (op.amd() ? 3U : 4U); ++i) {
      results.push_back(op.result(i));
    }
    graph.begin_op(op.amd() ? "aten::miopen_batch_norm" : "aten::cudnn_batch_norm",
                   std::move(inputs), sequence);
    if (op.amd()) {
      allocate(graph, results[0], {.order = true});
    } else {
      allocate_like(graph, results[0], x);
      view_channels(graph, op.tensor(kNormWeight), graph.shape(x).size());
    }
    allocate(graph, results[1]);
    allocate(graph, results[2]);
    if (!op.amd()) {
      no_bytes(graph);  // workspace
      allocate(graph, results[3]);
      kept.tensors = {results[3]};  // the reserve
    }
    graph.end_op({results.begin(), results.end()});
  });
}

// native_batch_norm_backward(gradient, input, weight, running mean, running variance, mean,
// inverse deviation, training, epsilon, mask)
void retarget_batch_norm_gradient(const CpuOp& op) {
  const KeptForBackward* kept = op.kept_around(kCudnnBackward);
  const Tensor* image = op.input(1);
  const bool is_taken = image && library_takes_batch_norm(image->dtype);
  const bool library = is_taken && op.integer(7) != 0 && op.given(2) && (op.amd() || kept);
  if (!library) return;  // the same kernels on both devices
  op.replace([op, kept](GraphBuilder& graph) {
    std::vector<Value> inputs;
    for (std::size_t i : {1, 0, 2, 3, 4, 5, 6, 8}) inputs.push_back(op.argument(i));
    if (kept) inputs.push_back(kept->tensors[0]);
    graph.begin_op(kept ? "aten::cudnn_batch_norm_backward" : "aten::miopen_batch_norm_backward",
                   std::move(inputs));
    std::vector<Value> outputs;
    for (std::size_t i = 0; i < 3; ++i) {
      const TensorRef out = op.result(i);
      allocate(graph, out, {.order = i == 0});
      outputs.push_back(out);
    }
    if (kept) {
      const TensorRef x = op.tensor(1);
      view_channels(graph, op.tensor(2), graph.shape(x).size());
      no_bytes(graph);
    }
    graph.end_op(std::move(outputs));
  });
}

// A CPU adds the gradients of weight and bias up in a buffer per thread.
void retarget_layer_norm_gradient(const CpuOp& op) {
  for (std::int32_t child : op.children()) {
    const Tensor* made = op.at(child).output(0);
    bool is_result = op.at(child).name() == "aten::contiguous";
    for (std::size_t i = 0; made && i < 3; ++i) {
      const Tensor* out = op.output(i);
      is_result |= out && out->id == made->id && made->numel == out->numel;
    }
    if (!is_result) op.at(child).leave_out();
  }
}

}  // namespace perfmodel
