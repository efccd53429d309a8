#include "softmax.hpp"

#include "memory.hpp"

namespace perfmodel {

TensorRef softmax(AutogradTape& tape, TensorRef x, int dim, bool in_float) {
  GraphBuilder& graph = tape.graph();
  const int code = scalar_type_code(graph.dtype(x));
  const TensorRef out = like(graph, x);
  graph.begin_op("aten::softmax.int", {x, dim, in_float ? Value(code) : Value(kNone)},
                 tape.sequence());
  if (in_float) {
    graph.leaf_op("aten::to.dtype_layout",
                  {x, code, 0, graph.device_value(), kNone, false, false, kNone}, {x},
                  tape.sequence());
  }
  graph.leaf_op("aten::_softmax", {x, dim, false}, {out}, tape.sequence());
  graph.end_op({out});
  tape.record("SoftmaxBackward0", {x}, out,
              [&graph, out, dim, code](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, out);
                graph.begin_op("aten::_softmax_backward_data", {gradient, out, dim, code});
                if (graph.pytorch().on_gpu()) {  // the CPU multiplies inside its kernel
                  graph.leaf_op("aten::mul.Tensor", {gradient, out}, {like(graph, out)});
                }
                graph.end_op({made});
                return {made};
              });
  return out;
}

}  // namespace perfmodel
