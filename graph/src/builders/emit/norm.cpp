#include "norm.hpp"

#include <algorithm>

#include "memory.hpp"
#include "pointwise.hpp"
#include "reduction.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

TensorRef empty_row_major(GraphBuilder& graph, DType dtype, const Shape& shape) {
  const TensorRef made = graph.new_tensor(dtype, shape);
  allocate(graph, made, {.order = true});
  return made;
}

// A CPU sums the gradients of weight and bias per thread, then over threads.
void sums_per_thread(GraphBuilder& graph, DType dtype, std::int64_t width) {
  zero(graph, resized(graph, empty(graph, dtype, {0}), {2, 1, width}));
}

TensorRef given(GraphBuilder& graph, TensorRef x) { return x.exists() ? x : graph.undefined(); }

}  // namespace

TensorRef native_layer_norm(GraphBuilder& graph, LayerNorm& norm, std::int64_t sequence) {
  graph.begin_op(
      "aten::native_layer_norm",
      {norm.x, norm.width, given(graph, norm.weight), given(graph, norm.bias), norm.epsilon},
      sequence);
  const TensorRef x = contiguous(graph, norm.x);
  const TensorRef out = empty_row_major(graph, graph.dtype(x), graph.shape(x));
  Shape statistics = graph.shape(x);
  std::fill(statistics.end() - static_cast<std::ptrdiff_t>(norm.width.size()), statistics.end(), 1);
  std::int64_t rows = 1;
  for (const std::int64_t size : statistics) rows *= size;
  const TensorRef mean = empty(graph, DType::kFloat32, {rows});
  const TensorRef rstd = empty(graph, DType::kFloat32, {rows});
  norm.mean = view(graph, mean, statistics);
  norm.rstd = view(graph, rstd, statistics);
  graph.end_op({out, norm.mean, norm.rstd});
  return out;
}

std::vector<TensorRef> native_layer_norm_backward(GraphBuilder& graph, const LayerNorm& norm,
                                                  TensorRef gradient, std::array<bool, 3> wanted) {
  const DType dtype = graph.dtype(norm.x);
  graph.begin_op("aten::native_layer_norm_backward",
                 {gradient, norm.x, norm.width, norm.mean, norm.rstd, given(graph, norm.weight),
                  given(graph, norm.bias), Value::List{wanted[0], wanted[1], wanted[2]}});
  const TensorRef dense = contiguous(graph, gradient);
  std::vector<TensorRef> gradients(3);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (wanted[i]) {
      gradients[i] = empty_row_major(graph, dtype, i == 0 ? graph.shape(dense) : norm.width);
    }
  }
  if (!graph.pytorch().on_gpu()) sums_per_thread(graph, dtype, norm.width[0]);
  graph.end_op(
      {given(graph, gradients[0]), given(graph, gradients[1]), given(graph, gradients[2])});
  return gradients;
}

TensorRef layer_norm(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias,
                     double eps) {
  GraphBuilder& graph = tape.graph();
  LayerNorm norm{
      .x = x, .weight = weight, .bias = bias, .width = graph.shape(weight), .epsilon = eps};
  graph.begin_op("aten::layer_norm", {x, norm.width, weight, bias, eps, true}, tape.sequence());
  norm.x = contiguous(graph, x);
  const TensorRef out = native_layer_norm(graph, norm, tape.sequence());
  graph.end_op({out});
  tape.record("NativeLayerNormBackward0", {x, weight, bias}, out,
              [&tape, norm](TensorRef gradient) {
                return native_layer_norm_backward(tape.graph(), norm, gradient,
                                                  {tape.requires_grad(norm.x), true, true});
              });
  return out;
}

}  // namespace perfmodel
