#include "pooling.hpp"

#include <algorithm>

#include "graph_views.hpp"
#include "memory.hpp"

namespace perfmodel {

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

}  // namespace perfmodel
