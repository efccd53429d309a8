#include "norm.hpp"

#include <utility>

#include "memory.hpp"
#include "pointwise.hpp"
#include "reduction.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

struct LayerNorm {
  TensorRef x, weight, bias;
  TensorRef mean = {}, rstd = {};  // of each row
};

TensorRef empty_row_major(GraphBuilder& graph, DType dtype, const Shape& shape) {
  const TensorRef made = graph.new_tensor(dtype, shape);
  allocate(graph, made, {.order = true});
  return made;
}

// A CPU sums the gradients of weight and bias per thread, then over threads.
void sums_per_thread(GraphBuilder& graph, DType dtype, std::int64_t width) {
  zero(graph, resized(graph, empty(graph, dtype, {0}), {2, 1, width}));
}

std::vector<TensorRef> layer_norm_backward(AutogradTape& tape, const LayerNorm& norm,
                                           TensorRef gradient) {
  GraphBuilder& graph = tape.graph();
  const DType dtype = graph.dtype(norm.x);
  const Shape width = graph.shape(norm.weight);
  const bool wants_x = tape.requires_grad(norm.x);
  graph.begin_op("aten::native_layer_norm_backward",
                 {gradient, norm.x, width, norm.mean, norm.rstd, norm.weight, norm.bias,
                  Value::List{wants_x, true, true}});
  const TensorRef dense = contiguous(graph, gradient);
  TensorRef x_gradient;
  if (wants_x) x_gradient = empty_row_major(graph, dtype, graph.shape(dense));
  const TensorRef weight_gradient = empty_row_major(graph, dtype, width);
  const TensorRef bias_gradient = empty_row_major(graph, dtype, width);
  if (!graph.pytorch().on_gpu()) sums_per_thread(graph, dtype, width[0]);
  graph.end_op({wants_x ? x_gradient : graph.undefined(), weight_gradient, bias_gradient});
  return {x_gradient, weight_gradient, bias_gradient};
}

}  // namespace

TensorRef layer_norm(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias,
                     double eps) {
  GraphBuilder& graph = tape.graph();
  const Shape width = graph.shape(weight);
  LayerNorm norm{.x = x, .weight = weight, .bias = bias};
  graph.begin_op("aten::layer_norm", {x, width, weight, bias, eps, true}, tape.sequence());
  norm.x = contiguous(graph, x);
  graph.begin_op("aten::native_layer_norm", {norm.x, width, weight, bias, eps}, tape.sequence());
  const TensorRef out = empty_row_major(graph, graph.dtype(x), graph.shape(x));
  const std::int64_t rows = graph.numel(x) / width[0];
  Shape statistics = graph.shape(x);
  statistics.back() = 1;
  const TensorRef mean = empty(graph, DType::kFloat32, {rows});
  const TensorRef rstd = empty(graph, DType::kFloat32, {rows});
  norm.mean = view(graph, mean, statistics);
  norm.rstd = view(graph, rstd, statistics);
  graph.end_op({out, norm.mean, norm.rstd});
  graph.end_op({out});
  tape.record(
      "NativeLayerNormBackward0", {x, weight, bias}, out,
      [&tape, norm](TensorRef gradient) { return layer_norm_backward(tape, norm, gradient); });
  return out;
}

TensorRef rms_norm(AutogradTape& tape, TensorRef x, TensorRef weight, double eps,
                   bool through_float) {
  GraphBuilder& graph = tape.graph();
  to_same_dtype(graph, x, tape.sequence());
  const TensorRef variance = mean(tape, pow(tape, x, 2), {-1}, true);
  const TensorRef scaled = mul(tape, x, rsqrt(tape, add(tape, variance, eps)));
  if (through_float) to_same_dtype(graph, scaled, tape.sequence());
  return mul(tape, weight, scaled);
}

TensorRef fused_rms_norm(AutogradTape& tape, TensorRef x, TensorRef weight, double eps) {
  GraphBuilder& graph = tape.graph();
  const Shape width = graph.shape(weight);
  graph.begin_op("aten::rms_norm", {x, width, weight, eps}, tape.sequence());
  Shape statistics = graph.shape(x);
  statistics.back() = 1;
  const TensorRef out = like(graph, x);
  const TensorRef root = graph.new_tensor(DType::kFloat32, statistics);
  graph.leaf_op("aten::_fused_rms_norm", {x, width, weight, eps}, {out, root}, tape.sequence());
  graph.end_op({out});
  tape.record("FusedRmsNormBackward0", {x, weight}, out,
              [&graph, x, weight, width, root](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef x_gradient = like(graph, x), weight_gradient = like(graph, weight);
                graph.leaf_op("aten::_fused_rms_norm_backward",
                              {gradient, x, width, root, weight, Value::List{true, true}},
                              {x_gradient, weight_gradient});
                return {x_gradient, weight_gradient};
              });
  return out;
}

}  // namespace perfmodel
