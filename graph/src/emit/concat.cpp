#include "concat.hpp"

#include "views.hpp"

namespace perfmodel {
TensorRef cat(AutogradTape& tape, const std::vector<TensorRef>& inputs, int dim) {
  GraphBuilder& graph = tape.graph();
  const auto axis = static_cast<std::size_t>(dim);
  Shape shape = graph.shape(inputs.front());
  shape[axis] = 0;
  for (TensorRef input : inputs) shape[axis] += graph.shape(input)[axis];
  const TensorRef out = graph.new_tensor(graph.dtype(inputs.front()), std::move(shape));
  graph.leaf_op("aten::cat", {inputs, dim}, {out}, tape.sequence());
  tape.record("CatBackward0", inputs, out, [&tape, &graph, inputs, dim, axis](TensorRef gradient) {
    std::vector<TensorRef> gradients(inputs.size());
    std::int64_t start = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::int64_t length = graph.shape(inputs[i])[axis];
      if (tape.requires_grad(inputs[i])) {
        gradients[i] = narrow(graph, gradient, dim, start, length);
      }
      start += length;
    }
    return gradients;
  });
  return out;
}

}  // namespace perfmodel
