#include "sequence.hpp"

#include "concat.hpp"
#include "views.hpp"

namespace perfmodel {

TensorRef stack(AutogradTape& tape, const std::vector<TensorRef>& parts, int dim) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = stack(graph, parts, dim, tape.sequence());
  const auto count = static_cast<std::int64_t>(parts.size());
  tape.record("StackBackward0", parts, out, [&graph, count, dim](TensorRef gradient) {
    std::vector<TensorRef> gradients;
    for (std::int64_t i = 0; i < count; ++i) gradients.push_back(select(graph, gradient, dim, i));
    return gradients;
  });
  return out;
}

std::vector<TensorRef> unsafe_chunk(AutogradTape& tape, TensorRef x, int parts, int dim) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t width = graph.shape(x)[dim] / parts;
  const std::int64_t sequence = tape.sequence();
  std::vector<TensorRef> made;
  graph.begin_op("aten::unsafe_chunk", {x, parts, dim}, sequence);
  graph.begin_op("aten::unsafe_split.Tensor", {x, width, dim}, sequence);
  for (int i = 0; i < parts; ++i) made.push_back(narrow(graph, x, dim, i * width, width));
  graph.end_op({made});
  tape.record("UnsafeSplitBackward0", {x}, made,
              [&graph, dim](const std::vector<TensorRef>& gradients) -> std::vector<TensorRef> {
                return {cat(graph, gradients, dim)};
              });
  return graph.end_with(made);
}

}  // namespace perfmodel
