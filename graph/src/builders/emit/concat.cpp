#include "concat.hpp"

#include <algorithm>
#include <utility>

#include "graph_views.hpp"

namespace perfmodel {
namespace {

// A CPU copies row-major inputs in one loop. Others go piece by piece into views of the result; if
// all have the same layout, the view of the first is moved along.
void pieces_on_cpu(GraphBuilder& graph, const std::vector<TensorRef>& inputs, TensorRef out,
                   std::size_t axis) {
  const auto row_major = [&graph](TensorRef input) { return graph.is_contiguous(input); };
  if (std::all_of(inputs.begin(), inputs.end(), row_major)) return;
  const auto like_first = [&graph, &inputs](TensorRef input) {
    return graph.shape(input) == graph.shape(inputs.front()) &&
           graph.strides(input) == graph.strides(inputs.front());
  };
  const bool alike = std::all_of(inputs.begin(), inputs.end(), like_first);
  std::int64_t start = 0;
  for (TensorRef input : inputs) {
    const std::int64_t length = graph.shape(input)[axis];
    narrow(graph, out, static_cast<int>(axis), start, length);
    if (alike) return;
    start += length;
  }
}

}  // namespace

TensorRef cat(GraphBuilder& graph, const std::vector<TensorRef>& inputs, int dim,
              std::int64_t sequence) {
  const std::size_t axis = axis_of(graph, inputs.front(), dim);
  Shape shape = graph.shape(inputs.front());
  shape[axis] = 0;
  for (TensorRef input : inputs) shape[axis] += graph.shape(input)[axis];
  const TensorRef out =
      graph.new_tensor(graph.dtype(inputs.front()), graph.device(inputs.front()), std::move(shape));
  graph.begin_op("aten::cat", {inputs, dim}, sequence);
  if (!graph.pytorch().on_gpu()) pieces_on_cpu(graph, inputs, out, axis);
  return graph.end_with(out);
}

TensorRef stack(GraphBuilder& graph, const std::vector<TensorRef>& inputs, int dim,
                std::int64_t sequence) {
  Shape shape = graph.shape(inputs.front());
  const auto rank = static_cast<int>(shape.size());
  const int axis = dim < 0 ? dim + rank + 1 : dim;
  TensorRef out;
  graph.begin_op("aten::stack", {inputs, dim}, sequence);
  if (axis < rank) {  // side by side along an axis that falls apart again
    shape.insert(shape.begin() + axis, static_cast<std::int64_t>(inputs.size()));
    out = view(graph, cat(graph, inputs, axis), shape);
  } else {
    std::vector<TensorRef> pieces;
    for (TensorRef input : inputs) pieces.push_back(unsqueeze(graph, input, dim));
    out = cat(graph, pieces, dim);
  }
  return graph.end_with(out);
}

TensorRef cat(AutogradTape& tape, const std::vector<TensorRef>& inputs, int dim) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = cat(graph, inputs, dim, tape.sequence());
  const int axis = static_cast<int>(axis_of(graph, inputs.front(), dim));
  // Inputs that need no gradient get one too.
  tape.record("CatBackward0", inputs, out, [&graph, inputs, axis](TensorRef gradient) {
    std::vector<TensorRef> gradients;
    std::int64_t start = 0;
    for (TensorRef input : inputs) {
      const std::int64_t length = graph.shape(input)[axis];
      gradients.push_back(narrow(graph, gradient, axis, start, length));
      start += length;
    }
    return gradients;
  });
  return out;
}

}  // namespace perfmodel
