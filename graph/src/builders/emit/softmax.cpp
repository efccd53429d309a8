#include "softmax.hpp"

#include <utility>

#include "memory.hpp"
#include "pointwise.hpp"
#include "update.hpp"

namespace perfmodel {

namespace {

// The last op inside gives `out`.
void softmax(GraphBuilder& graph, TensorRef x, TensorRef out, int dim, bool in_float,
             std::int64_t sequence) {
  const int code = scalar_type_code(graph.dtype(x));
  graph.begin_op("aten::softmax.int", {x, dim, in_float ? Value(code) : Value(kNone)}, sequence);
  if (in_float) to(graph, x, x, {}, sequence);
  graph.leaf_op("aten::_softmax", {x, dim, false}, {out}, sequence);
  graph.end_op({out});
}

}  // namespace

TensorRef softmax_backward(GraphBuilder& graph, TensorRef gradient, TensorRef out, int dim) {
  const TensorRef made = like(graph, out);
  graph.begin_op("aten::_softmax_backward_data",
                 {gradient, out, dim, scalar_type_code(graph.dtype(out))});
  if (graph.pytorch().on_gpu()) mul(graph, gradient, out);  // the CPU multiplies inside its kernel
  graph.end_op({made});
  return made;
}

TensorRef softmax(AutogradTape& tape, TensorRef x, int dim, bool in_float) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = like(graph, x);
  softmax(graph, x, out, dim, in_float, tape.sequence());
  tape.record("SoftmaxBackward0", {x}, out,
              [&graph, out, dim](TensorRef gradient) -> std::vector<TensorRef> {
                return {softmax_backward(graph, gradient, out, dim)};
              });
  return out;
}

TensorRef safe_softmax(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::_safe_softmax", {x, -1, kNone}, tape.sequence());
  const TensorRef weights = like(graph, x), out = like(graph, x);
  softmax(graph, x, weights, -1, false, -1);
  const TensorRef hidden = graph.new_tensor(DType::kBool, graph.shape(x));
  graph.leaf_op("aten::isneginf", {x}, {hidden});
  Shape rows = graph.shape(x);
  rows.back() = 1;
  const TensorRef empty_rows = graph.new_tensor(DType::kBool, rows);
  graph.leaf_op("aten::all.dim", {hidden, -1, true}, {empty_rows});
  const TensorRef zero = scalar_tensor(graph, 0.0, graph.dtype(x));
  graph.leaf_op("aten::where.self", {empty_rows, zero, weights}, {out});
  graph.end_op({out});
  tape.record("SafeSoftmaxBackward0", {x}, out,
              [&graph, out](TensorRef gradient) -> std::vector<TensorRef> {
                return {softmax_backward(graph, gradient, out, -1)};
              });
  return out;
}

TensorRef log_softmax(AutogradTape& tape, TensorRef x, int dim, bool with_dtype) {
  GraphBuilder& graph = tape.graph();
  const int code = scalar_type_code(graph.dtype(x));
  const TensorRef out = like(graph, x);
  const std::int64_t sequence = tape.sequence();
  std::vector<Value> arguments = {x, dim, kNone};
  if (with_dtype) arguments.back() = code;
  graph.begin_op("aten::log_softmax.int", std::move(arguments), sequence);
  if (with_dtype) to(graph, x, x, {}, sequence);
  graph.leaf_op("aten::_log_softmax", {x, dim, false}, {out}, sequence);
  graph.end_op({out});
  tape.record(
      "LogSoftmaxBackward0", {x}, out,
      [&graph, out, dim, code](TensorRef gradient) -> std::vector<TensorRef> {
        const TensorRef made = like(graph, out);
        graph.leaf_op("aten::_log_softmax_backward_data", {gradient, out, dim, code}, {made});
        return {made};
      });
  return out;
}

TensorRef masked_softmax(AutogradTape& tape, TensorRef x, TensorRef mask) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = like(graph, x);
  graph.leaf_op("aten::_masked_softmax", {x, mask, -1, kNone}, {out}, tape.sequence());
  tape.record("MaskedSoftmaxBackward0", {x}, out,
              [&graph, out, mask](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, out);
                graph.leaf_op("aten::_masked_softmax_backward", {gradient, out, mask, -1}, {made});
                return {made};
              });
  return out;
}

}  // namespace perfmodel
