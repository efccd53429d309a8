#include "concat.hpp"

#include <algorithm>
#include <utility>

#include "views.hpp"

namespace perfmodel {

TensorRef cat(GraphBuilder& graph, const std::vector<TensorRef>& inputs, int dim,
              std::int64_t sequence) {
  const std::size_t axis = axis_of(graph, inputs.front(), dim);
  Shape shape = graph.shape(inputs.front());
  shape[axis] = 0;
  for (TensorRef input : inputs) shape[axis] += graph.shape(input)[axis];
  const TensorRef out = graph.new_tensor(graph.dtype(inputs.front()), std::move(shape));
  graph.begin_op("aten::cat", {inputs, dim}, sequence);
  // A CPU copies row-major inputs in one loop, others piece by piece.
  const auto row_major = [&graph](TensorRef input) { return graph.is_contiguous(input); };
  if (!graph.pytorch().on_gpu() && !std::all_of(inputs.begin(), inputs.end(), row_major)) {
    std::int64_t start = 0;
    for (TensorRef input : inputs) {
      const std::int64_t length = graph.shape(input)[axis];
      narrow(graph, out, static_cast<int>(axis), start, length);
      start += length;
    }
  }
  graph.end_op({out});
  return out;
}

TensorRef stack(GraphBuilder& graph, const std::vector<TensorRef>& inputs, int dim) {
  graph.begin_op("aten::stack", {inputs, dim});
  std::vector<TensorRef> pieces;
  for (TensorRef input : inputs) pieces.push_back(unsqueeze(graph, input, dim));
  const TensorRef out = cat(graph, pieces, dim);
  graph.end_op({out});
  return out;
}

TensorRef cat(AutogradTape& tape, const std::vector<TensorRef>& inputs, int dim) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = cat(graph, inputs, dim, tape.sequence());
  const int axis = static_cast<int>(axis_of(graph, inputs.front(), dim));
  tape.record("CatBackward0", inputs, out, [&tape, &graph, inputs, axis](TensorRef gradient) {
    std::vector<TensorRef> gradients(inputs.size());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::int64_t length = graph.shape(inputs[i])[static_cast<std::size_t>(axis)];
      if (tape.requires_grad(inputs[i])) {
        gradients[i] = narrow(graph, gradient, axis, start, length);
      }
      start += length;
    }
    return gradients;
  });
  return out;
}

}  // namespace perfmodel
