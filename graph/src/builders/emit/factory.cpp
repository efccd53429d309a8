#include "factory.hpp"

#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {

TensorRef python_empty(GraphBuilder& graph, DType dtype, const Shape& shape, bool with_dtype) {
  const TensorRef made = graph.new_tensor(dtype, shape);
  allocate(graph, made, from_python(with_dtype));
  return made;
}

TensorRef ones(GraphBuilder& graph, DType dtype, Shape shape) {
  const bool with_dtype = dtype != DType::kFloat32;
  const Value code = with_dtype ? Value(scalar_type_code(dtype)) : Value(kNone);
  graph.begin_op("aten::ones", {shape, code, kNone, graph.device_value(), false});
  const TensorRef made = python_empty(graph, dtype, shape, with_dtype);
  fill(graph, made, 1);
  return graph.end_with(made);
}

TensorRef full(GraphBuilder& graph, Shape shape, double value) {
  const Value code = scalar_type_code(DType::kFloat32);
  graph.begin_op("aten::full", {shape, value, code, kNone, graph.device_value(), false});
  const TensorRef made = python_empty(graph, DType::kFloat32, shape);
  fill(graph, made, value);
  return graph.end_with(made);
}

TensorRef arange(GraphBuilder& graph, std::int64_t count) {
  graph.begin_op("aten::arange.start",
                 {0, count, scalar_type_code(DType::kInt64), kNone, graph.device_value(), false});
  const TensorRef made = fill_arange(graph, python_empty(graph, DType::kInt64, {0}), count);
  return graph.end_with(made);
}

TensorRef fill_arange(GraphBuilder& graph, TensorRef unsized, std::int64_t count) {
  graph.begin_op("aten::arange.start_out", {0, count, 1, unsized});
  const TensorRef made = resized(graph, unsized, {count});
  return graph.end_with(made);
}

TensorRef tensor_of_number(AutogradTape& tape, DType dtype) {
  GraphBuilder& graph = tape.graph();
  const TensorRef host = graph.new_tensor(dtype, graph.cpu(), {});
  return tensor_of_python(graph, host, graph.device(), {}, tape.sequence());
}

}  // namespace perfmodel
