#include "views.hpp"

#include "concat.hpp"
#include "memory.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

namespace {
TensorRef reshaped_view(AutogradTape& tape, TensorRef x, const Shape& asked) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = reshaped_view(graph, x, asked, tape.sequence());
  return tape.record_unary(graph.pytorch().before(2, 1) ? "ReshapeAliasBackward0" : "ViewBackward0",
                           x, out, [&graph, from = graph.shape(x)](TensorRef gradient) {
                             return reshape(graph, gradient, from);
                           });
}
}  // namespace

TensorRef flatten(AutogradTape& tape, TensorRef x, int from_dim) {
  GraphBuilder& graph = tape.graph();
  const Shape& from = graph.shape(x);
  Shape shape(from.begin(), from.begin() + from_dim);
  shape.push_back(1);
  for (std::size_t i = static_cast<std::size_t>(from_dim); i < from.size(); ++i) {
    shape.back() *= from[i];
  }
  graph.begin_op("aten::flatten.using_ints", {x, from_dim, -1}, tape.sequence());
  return graph.end_with(reshaped_view(tape, x, shape));
}

TensorRef reshape(AutogradTape& tape, TensorRef x, const Shape& asked) {
  GraphBuilder& graph = tape.graph();
  const Shape shape = resolve(graph, x, asked);
  graph.begin_op("aten::reshape", {x, asked}, tape.sequence());
  TensorRef made;
  if (!view_strides(graph, x, shape)) {
    made = unsafe_view(tape, emit(tape, "aten::clone", {x, 0}), shape);
  } else {
    made = reshaped_view(tape, x, graph.is_contiguous(x) ? asked : shape);
  }
  return graph.end_with(made);
}

TensorRef contiguous(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  if (graph.is_contiguous(x)) return x;
  graph.begin_op("aten::contiguous", {x, 0}, tape.sequence());
  const TensorRef made = emit(tape, "aten::clone", {x, 0});
  return graph.end_with(made);
}

}  // namespace perfmodel
