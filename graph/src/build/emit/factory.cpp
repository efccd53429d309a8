#include "factory.hpp"

#include <utility>

#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

TensorOptions python_options(bool with_dtype) {
  TensorOptions options = kFromPython;
  options.dtype = with_dtype;
  return options;
}

Value dtype_argument(DType dtype, bool given) {
  return given ? Value(scalar_type_code(dtype)) : Value(kNone);
}

}  // namespace

TensorRef python_empty(GraphBuilder& graph, DType dtype, const Shape& shape, bool with_dtype) {
  const TensorRef made = graph.new_tensor(dtype, shape);
  allocate(graph, made, python_options(with_dtype));
  return made;
}

TensorRef python_zeros(GraphBuilder& graph, Device device, const Shape& shape, bool with_dtype) {
  const TensorRef made = graph.new_tensor(DType::kFloat32, device, shape);
  graph.begin_op("aten::zeros", {shape, dtype_argument(DType::kFloat32, with_dtype), kNone,
                                 GraphBuilder::device_value(device), false});
  allocate(graph, made, python_options(with_dtype));
  zero(graph, made);
  graph.end_op({made});
  return made;
}

TensorRef ones(GraphBuilder& graph, DType dtype, Shape shape) {
  const bool with_dtype = dtype != DType::kFloat32;
  graph.begin_op("aten::ones",
                 {shape, dtype_argument(dtype, with_dtype), kNone, graph.device_value(), false});
  const TensorRef made = python_empty(graph, dtype, shape, with_dtype);
  fill(graph, made, 1);
  graph.end_op({made});
  return made;
}

TensorRef full(GraphBuilder& graph, Shape shape, double value) {
  const Value code = scalar_type_code(DType::kFloat32);
  graph.begin_op("aten::full", {shape, value, code, kNone, graph.device_value(), false});
  const TensorRef made = python_empty(graph, DType::kFloat32, shape);
  fill(graph, made, value);
  graph.end_op({made});
  return made;
}

TensorRef arange(GraphBuilder& graph, std::int64_t count) {
  graph.begin_op("aten::arange.start",
                 {0, count, scalar_type_code(DType::kInt64), kNone, graph.device_value(), false});
  const TensorRef made = fill_arange(graph, python_empty(graph, DType::kInt64, {0}), count);
  graph.end_op({made});
  return made;
}

TensorRef fill_arange(GraphBuilder& graph, TensorRef unsized, std::int64_t count) {
  graph.begin_op("aten::arange.start_out", {0, count, 1, unsized});
  const TensorRef made = resize(graph, unsized, {count});
  graph.end_op({made});
  return made;
}

TensorRef tensor_of_number(AutogradTape& tape, DType dtype) {
  GraphBuilder& graph = tape.graph();
  const TensorRef host = graph.new_tensor(dtype, graph.cpu(), {});
  return tensor_of_python(graph, host, graph.device(), {}, tape.sequence());
}

}  // namespace perfmodel
