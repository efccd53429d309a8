#include "softmax.hpp"

#include "memory.hpp"
#include "pointwise.hpp"
#include "update.hpp"

namespace perfmodel {

namespace {

// Python's function, which may be asked for a type, around the kernel's op.
TensorRef by_type(AutogradTape& tape, const char* function, const char* op, TensorRef x, int dim,
                  bool with_dtype) {
  GraphBuilder& graph = tape.graph();
  const int code = scalar_type_code(graph.dtype(x));
  graph.begin_op(function, {x, dim, with_dtype ? Value(code) : Value(kNone)}, tape.sequence());
  if (with_dtype) to(graph, x, x, {}, tape.sequence());
  const TensorRef out = emit(tape, op, {x, dim, false});
  return graph.end_with(out);
}

}  // namespace

TensorRef softmax_backward(GraphBuilder& graph, TensorRef gradient, TensorRef out, int dim) {
  const TensorRef made = like(graph, out);
  graph.begin_op("aten::_softmax_backward_data",
                 {gradient, out, dim, scalar_type_code(graph.dtype(out))});
  if (graph.pytorch().on_gpu()) mul(graph, gradient, out);  // the CPU multiplies inside its kernel
  return graph.end_with(made);
}

TensorRef softmax(AutogradTape& tape, TensorRef x, int dim, bool in_float) {
  return by_type(tape, "aten::softmax.int", "aten::_softmax", x, dim, in_float);
}

TensorRef safe_softmax(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::_safe_softmax", {x, -1, kNone}, tape.sequence());
  const TensorRef out = like(graph, x);
  const TensorRef weights = emit(graph, "aten::softmax.int", {x, -1, kNone});
  const TensorRef hidden = graph.new_tensor(DType::kBool, graph.shape(x));
  graph.leaf_op("aten::isneginf", {x}, {hidden});
  Shape rows = graph.shape(x);
  rows.back() = 1;
  const TensorRef empty_rows = graph.new_tensor(DType::kBool, rows);
  graph.leaf_op("aten::all.dim", {hidden, -1, true}, {empty_rows});
  const TensorRef zero = scalar_tensor(graph, 0.0, graph.dtype(x));
  graph.leaf_op("aten::where.self", {empty_rows, zero, weights}, {out});
  graph.end_op({out});
  return tape.record_unary("SafeSoftmaxBackward0", x, out, [&graph, out](TensorRef gradient) {
    return softmax_backward(graph, gradient, out, -1);
  });
}

TensorRef log_softmax(AutogradTape& tape, TensorRef x, int dim, bool with_dtype) {
  return by_type(tape, "aten::log_softmax.int", "aten::_log_softmax", x, dim, with_dtype);
}

}  // namespace perfmodel
