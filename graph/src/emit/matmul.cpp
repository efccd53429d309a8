#include "matmul.hpp"

#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

std::vector<TensorRef> addmm_backward(AutogradTape& tape, TensorRef gradient, TensorRef x,
                                      TensorRef weight_t) {
  GraphBuilder& graph = tape.graph();
  TensorRef x_gradient;
  if (tape.requires_grad(x)) {
    const TensorRef weight = t(graph, weight_t);
    x_gradient = like(graph, x);
    graph.leaf_op("aten::mm", {gradient, weight}, {x_gradient});
  }
  const TensorRef gradient_t = t(graph, gradient);
  const TensorRef weight_gradient =
      graph.new_tensor(graph.dtype(x), {graph.shape(gradient_t)[0], graph.shape(x)[1]});
  graph.leaf_op("aten::mm", {gradient_t, x}, {weight_gradient});
  return {gradient, x_gradient, t(graph, weight_gradient)};
}

}  // namespace

TensorRef linear(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t batch = graph.shape(x)[0], width = graph.shape(weight)[0];
  const TensorRef out = graph.new_tensor(graph.dtype(x), {batch, width});
  graph.begin_op("aten::linear", {x, weight, bias}, tape.sequence());

  const TensorRef weight_t = t(graph, weight, tape.sequence());
  tape.record(
      "TBackward0", {weight}, weight_t,
      [&graph](TensorRef gradient) -> std::vector<TensorRef> { return {t(graph, gradient)}; });

  graph.begin_op("aten::addmm", {bias, x, weight_t, 1, 1}, tape.sequence());
  // cuBLASLt adds the bias itself, except for thin matrices, where it is copied to the output.
  const bool epilogue = width > 1 && graph.shape(weight)[1] > 1;
  if (!epilogue) expand(graph, bias, {batch, width});
  graph.end_op({out});
  tape.record("AddmmBackward0", {bias, x, weight_t}, out, [&tape, x, weight_t](TensorRef gradient) {
    return addmm_backward(tape, gradient, x, weight_t);
  });

  graph.end_op({out});
  return out;
}

TensorRef bmm(AutogradTape& tape, TensorRef a, TensorRef b) {
  GraphBuilder& graph = tape.graph();
  const Shape& rows = graph.shape(a);
  const TensorRef out = graph.new_tensor(graph.dtype(a), {rows[0], rows[1], graph.shape(b)[2]});
  graph.leaf_op("aten::bmm", {a, b}, {out}, tape.sequence());
  tape.record("BmmBackward0", {a, b}, out,
              [&graph, a, b](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef a_t = transpose(graph, a, 1, 2);
                const TensorRef b_gradient = like(graph, b);
                graph.leaf_op("aten::bmm", {a_t, gradient}, {b_gradient});
                const TensorRef b_t = transpose(graph, b, 1, 2);
                const TensorRef a_gradient = like(graph, a);
                graph.leaf_op("aten::bmm", {gradient, b_t}, {a_gradient});
                return {a_gradient, b_gradient};
              });
  return out;
}

}  // namespace perfmodel
