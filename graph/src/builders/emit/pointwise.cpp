#include "pointwise.hpp"

#include <algorithm>

#include "memory.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
TensorRef pow(GraphBuilder& graph, TensorRef x, Number exponent, std::int64_t sequence) {
  const TensorRef made = pointwise_result(graph, {x}, graph.dtype(x));
  const Value number = exponent.argument();
  graph.begin_op("aten::pow.Tensor_Scalar", {x, number}, sequence);
  graph.leaf_op("aten::result_type.Scalar", {x, number}, {scalar_type_code(graph.dtype(x))});
  to_same_dtype(graph, x);
  if (exponent.value == 1) copy(graph, made, x);
  return graph.end_with(made);
}

TensorRef where(GraphBuilder& graph, TensorRef mask, TensorRef x, TensorRef other,
                std::int64_t sequence) {
  const TensorRef made = pointwise_result(graph, {x, mask, other}, graph.dtype(x));
  graph.begin_op("aten::where.self", {mask, x, other}, sequence);
  empty(graph, graph.dtype(x), {0});  // the output before it has its size
  return graph.end_with(made);
}

// A CPU fills it without a call.
TensorRef scalar_tensor(GraphBuilder& graph, Number number, DType dtype) {
  graph.begin_op("aten::scalar_tensor",
                 {number.argument(), scalar_type_code(dtype), 0, graph.device_value(), kNone});
  TensorRef made;
  if (graph.pytorch().on_gpu()) {
    made = empty(graph, dtype, {});
    fill(graph, made, number.argument());
  } else {
    made = graph.new_tensor(dtype, {});
  }
  return graph.end_with(made);
}

TensorRef cast(AutogradTape& tape, TensorRef x, DType dtype) {
  GraphBuilder& graph = tape.graph();
  const DType from = graph.dtype(x);
  if (from == dtype) return x;
  const TensorRef made = pointwise_result(graph, {x}, dtype);
  to_dtype(graph, x, made, tape.sequence());
  return tape.record_unary("ToCopyBackward0", x, made, [&graph, from](TensorRef gradient) {
    return to_dtype(graph, gradient, from);
  });
}

}  // namespace perfmodel
