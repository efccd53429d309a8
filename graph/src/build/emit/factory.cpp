#include "factory.hpp"

#include <utility>

#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

TensorRef unfilled(GraphBuilder& graph, DType dtype, const Shape& shape, const Value& code) {
  const TensorRef made = graph.new_tensor(dtype, shape);
  graph.leaf_op("aten::empty.memory_format",
                {shape, code, kNone, graph.device_value(), false, kNone}, {made});
  return made;
}

}  // namespace

TensorRef ones(GraphBuilder& graph, DType dtype, Shape shape) {
  const Value code = dtype == DType::kFloat32 ? Value(kNone) : Value(scalar_type_code(dtype));
  graph.begin_op("aten::ones", {shape, code, kNone, graph.device_value(), false});
  const TensorRef made = unfilled(graph, dtype, shape, code);
  graph.leaf_op("aten::fill_.Scalar", {made, 1}, {made});
  graph.end_op({made});
  return made;
}

TensorRef full(GraphBuilder& graph, Shape shape, double value) {
  const Value code = scalar_type_code(DType::kFloat32);
  graph.begin_op("aten::full", {shape, value, code, kNone, graph.device_value(), false});
  const TensorRef made = unfilled(graph, DType::kFloat32, shape, code);
  graph.leaf_op("aten::fill_.Scalar", {made, value}, {made});
  graph.end_op({made});
  return made;
}

TensorRef arange(GraphBuilder& graph, std::int64_t count) {
  const int code = scalar_type_code(DType::kInt64);
  const Value device = graph.device_value();
  graph.begin_op("aten::arange.start", {0, count, code, kNone, device, false});
  const TensorRef unsized = graph.new_tensor(DType::kInt64, {0});
  graph.leaf_op("aten::empty.memory_format", {Shape{0}, code, kNone, device, false, kNone},
                {unsized});
  const TensorRef made = contiguous_view(graph, unsized, {count});
  graph.begin_op("aten::arange.start_out", {0, count, 1, unsized});
  graph.leaf_op("aten::resize_", {unsized, Shape{count}, kNone}, {made});
  graph.end_op({made});
  graph.end_op({made});
  return made;
}

TensorRef tensor_of_number(AutogradTape& tape, DType dtype) {
  GraphBuilder& graph = tape.graph();
  const int code = scalar_type_code(dtype);
  const TensorRef host = graph.new_tensor(dtype, graph.cpu(), {});
  graph.leaf_op("aten::empty.memory_format",
                {Shape{}, code, 0, GraphBuilder::device_value(graph.cpu()), false, kNone}, {host});
  const Value device = graph.device_value();
  TensorRef made = host;
  graph.begin_op("aten::to.device", {host, device, code, false, false, kNone});
  if (graph.pytorch().on_gpu()) {
    made = graph.new_tensor(dtype, {});
    graph.begin_op("aten::_to_copy", {host, code, 0, device, kNone, false, kNone});
    graph.leaf_op("aten::empty_strided", {Shape{}, Shape{}, code, 0, device, false}, {made});
    copy(graph, made, host);
    graph.end_op({made});
  }
  graph.end_op({made});
  graph.leaf_op("aten::lift_fresh", {made}, {made});
  graph.begin_op("aten::detach_", {made}, tape.sequence());
  graph.begin_plain("detach_", {made});
  graph.end_op();
  graph.end_op({made});
  return made;
}

}  // namespace perfmodel
