#include "softmax.hpp"

#include <utility>

#include "memory.hpp"
#include "update.hpp"

namespace perfmodel {

TensorRef softmax(AutogradTape& tape, TensorRef x, int dim, bool in_float) {
  GraphBuilder& graph = tape.graph();
  const int code = scalar_type_code(graph.dtype(x));
  const TensorRef out = like(graph, x);
  graph.begin_op("aten::softmax.int", {x, dim, in_float ? Value(code) : Value(kNone)},
                 tape.sequence());
  if (in_float) to(graph, x, x, {}, tape.sequence());
  graph.leaf_op("aten::_softmax", {x, dim, false}, {out}, tape.sequence());
  graph.end_op({out});
  tape.record("SoftmaxBackward0", {x}, out,
              [&graph, out, dim, code](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, out);
                graph.begin_op("aten::_softmax_backward_data", {gradient, out, dim, code});
                if (graph.pytorch().on_gpu()) {  // the CPU multiplies inside its kernel
                  mul(graph, gradient, out);
                }
                graph.end_op({made});
                return {made};
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
