#include "sequence.hpp"

#include <utility>

#include "views.hpp"

namespace perfmodel {
namespace {

// [A, B, C] times n parts along axis d: that axis grows.
TensorRef cat_without_gradient(GraphBuilder& graph, const std::vector<TensorRef>& parts, int dim) {
  Shape shape = graph.shape(parts.front());
  shape[static_cast<std::size_t>(dim)] *= static_cast<std::int64_t>(parts.size());
  const TensorRef made = graph.new_tensor(graph.dtype(parts.front()), std::move(shape));
  graph.leaf_op("aten::cat", {parts, dim}, {made});
  return made;
}

}  // namespace

std::vector<TensorRef> unbind(AutogradTape& tape, TensorRef x, int dim) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t count = graph.shape(x)[static_cast<std::size_t>(dim)];
  std::vector<TensorRef> parts;
  graph.begin_op("aten::unbind.int", {x, dim}, tape.sequence());
  for (std::int64_t i = 0; i < count; ++i) parts.push_back(select(graph, x, dim, i));
  graph.end_op({parts});
  if (!tape.requires_grad(x)) return parts;
  tape.record("UnbindBackward0", {x}, parts,
              [&graph, dim](const std::vector<TensorRef>& gradients) -> std::vector<TensorRef> {
                return {stack(graph, gradients, dim)};
              });
  return parts;
}

std::vector<TensorRef> chunk(AutogradTape& tape, TensorRef x, int parts, int dim, ChunkKind kind) {
  GraphBuilder& graph = tape.graph();
  const bool unsafe = kind == ChunkKind::kUnsafe;
  const std::int64_t width = graph.shape(x)[static_cast<std::size_t>(dim)] / parts;
  const std::int64_t sequence = tape.sequence();
  std::vector<TensorRef> made;
  graph.begin_op(unsafe ? "aten::unsafe_chunk" : "aten::chunk", {x, parts, dim}, sequence);
  graph.begin_op(unsafe ? "aten::unsafe_split.Tensor" : "aten::split.Tensor", {x, width, dim},
                 sequence);
  for (int i = 0; i < parts; ++i) made.push_back(narrow(graph, x, dim, i * width, width));
  graph.end_op({made});
  if (tape.requires_grad(x)) {
    tape.record(unsafe ? "UnsafeSplitBackward0" : "SplitBackward0", {x}, made,
                [&graph, dim](const std::vector<TensorRef>& gradients) -> std::vector<TensorRef> {
                  return {cat_without_gradient(graph, gradients, dim)};
                });
  }
  graph.end_op({made});
  return made;
}

TensorRef stack(GraphBuilder& graph, const std::vector<TensorRef>& parts, int dim,
                std::int64_t sequence) {
  graph.begin_op("aten::stack", {parts, dim}, sequence);
  Shape shape = graph.shape(parts.front());
  shape.insert(shape.begin() + dim, static_cast<std::int64_t>(parts.size()));
  const TensorRef made = view(graph, cat_without_gradient(graph, parts, dim), shape);
  graph.end_op({made});
  return made;
}

TensorRef stack(AutogradTape& tape, const std::vector<TensorRef>& parts, int dim) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = stack(graph, parts, dim, tape.sequence());
  tape.record("StackBackward0", parts, out, [&tape, &graph, parts, dim](TensorRef gradient) {
    std::vector<TensorRef> gradients(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!tape.requires_grad(parts[i])) continue;
      gradients[i] = select(graph, gradient, dim, static_cast<std::int64_t>(i));
    }
    return gradients;
  });
  return out;
}

}  // namespace perfmodel
