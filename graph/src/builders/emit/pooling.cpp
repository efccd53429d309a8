#include "pooling.hpp"

#include <algorithm>

#include "convolution.hpp"
#include "graph_views.hpp"
#include "memory.hpp"
#include "reduction.hpp"

namespace perfmodel {
namespace {

Shape pooled_shape(const Shape& from, const Pool2d& pool) {
  const Conv2d windows = {.stride = {pool.stride, pool.stride},
                          .padding = {pool.padding, pool.padding}};
  const Shape size = convolved_size({from[2], from[3]}, {pool.kernel, pool.kernel}, windows);
  return {from[0], from[1], size[0], size[1]};
}

Shape square(std::int64_t size) { return {size, size}; }

}  // namespace

TensorRef max_pool2d(AutogradTape& tape, TensorRef x, const Pool2d& pool) {
  GraphBuilder& graph = tape.graph();
  const Shape shape = pooled_shape(graph.shape(x), pool);
  const TensorRef out = graph.new_tensor(graph.dtype(x), shape);
  const TensorRef indices = graph.new_tensor(DType::kInt64, shape);
  const std::vector<Value> window = {square(pool.kernel), square(pool.stride), square(pool.padding),
                                     square(1), false};
  std::vector<Value> arguments = {x};
  arguments.insert(arguments.end(), window.begin(), window.end());
  graph.begin_op("aten::max_pool2d", arguments, tape.sequence());
  graph.leaf_op("aten::max_pool2d_with_indices", arguments, {out, indices}, tape.sequence());
  graph.end_op({out});
  return tape.record_unary("MaxPool2DWithIndicesBackward0", x, out,
                           [&graph, x, indices, window](TensorRef gradient) {
                             const TensorRef made = like(graph, x);
                             std::vector<Value> inputs = {gradient, x};
                             inputs.insert(inputs.end(), window.begin(), window.end());
                             inputs.emplace_back(indices);
                             graph.begin_op("aten::max_pool2d_with_indices_backward", inputs);
                             zero(graph, made);
                             return graph.end_with(made);
                           });
}

TensorRef avg_pool2d(AutogradTape& tape, TensorRef x, const Pool2d& pool) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = graph.new_tensor(graph.dtype(x), pooled_shape(graph.shape(x), pool));
  const std::vector<Value> window = {
      square(pool.kernel), square(pool.stride), square(pool.padding), false, true, kNone};
  std::vector<Value> arguments = {x};
  arguments.insert(arguments.end(), window.begin(), window.end());
  graph.leaf_op("aten::avg_pool2d", arguments, {out}, tape.sequence());
  return tape.record_unary("AvgPool2DBackward0", x, out, [&graph, x, window](TensorRef gradient) {
    const TensorRef made = like(graph, x);
    std::vector<Value> inputs = {gradient, x};
    inputs.insert(inputs.end(), window.begin(), window.end());
    graph.begin_op("aten::avg_pool2d_backward", inputs);
    if (!graph.pytorch().on_gpu()) zero(graph, made);  // a GPU sets each element once
    return graph.end_with(made);
  });
}

TensorRef windows_of_any_size(GraphBuilder& graph, TensorRef x, const Shape& size,
                              std::int64_t sequence) {
  Shape shape = graph.shape(x);
  std::ranges::copy(size, shape.end() - 2);
  graph.begin_op("aten::_adaptive_avg_pool2d", {x, size}, sequence);
  const TensorRef nothing = empty(graph, graph.dtype(x), {0});
  const TensorRef out = graph.new_view(nothing, shape, contiguous_strides(shape));
  resize_to(graph, nothing, out, 0);
  return graph.end_with(out);
}

TensorRef windows_of_any_size_backward(GraphBuilder& graph, TensorRef gradient, TensorRef x) {
  graph.begin_op("aten::_adaptive_avg_pool2d_backward", {gradient, x});
  TensorRef made;
  if (graph.pytorch().on_gpu()) {
    made = zeros_like(graph, x, graph.dtype(x));
  } else {
    const TensorRef none = empty(graph, graph.dtype(x), {0});
    made = graph.new_view(none, graph.shape(x), graph.strides(x));
    resize_to(graph, none, made, 0);
    zero(graph, made);
  }
  return graph.end_with(made);
}

TensorRef adaptive_avg_pool2d(AutogradTape& tape, TensorRef x, const Shape& size) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::adaptive_avg_pool2d", {x, size}, tape.sequence());
  if (size == Shape{1, 1}) {
    const TensorRef out = mean(tape, x, {-1, -2}, true);
    return graph.end_with(out);
  }
  const TensorRef out = windows_of_any_size(graph, x, size, tape.sequence());
  graph.end_op({out});
  return tape.record_unary("AdaptiveAvgPool2DBackward0", x, out, [&graph, x](TensorRef gradient) {
    return windows_of_any_size_backward(graph, gradient, x);
  });
}

TensorRef upsample_nearest2d(AutogradTape& tape, TensorRef x, const Shape& size) {
  GraphBuilder& graph = tape.graph();
  const Shape from = graph.shape(x);
  const TensorRef out = graph.new_tensor(graph.dtype(x), {from[0], from[1], size[0], size[1]});
  graph.begin_op("aten::upsample_nearest2d.vec", {x, size, kNone}, tape.sequence());
  graph.leaf_op("aten::upsample_nearest2d", {x, size, kNone, kNone}, {out}, tape.sequence());
  graph.end_op({out});
  return tape.record_unary(
      "UpsampleNearest2DBackward0", x, out, [&graph, x, from, size](TensorRef gradient) {
        return graph.leaf("aten::upsample_nearest2d_backward", {gradient, size, from, kNone, kNone},
                          like(graph, x));
      });
}

}  // namespace perfmodel
