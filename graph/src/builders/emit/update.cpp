#include "update.hpp"

#include "memory.hpp"

namespace perfmodel {
namespace {

// TensorIterator casts a number of another type if the op computes on the CPU.
void cast(GraphBuilder& graph, TensorRef number, TensorRef x) {
  if (graph.device(x) != GraphBuilder::cpu() || graph.dtype(x) == graph.dtype(number)) return;
  to_dtype(graph, number, graph.dtype(x));
}

DType type_of(const Value& number) {
  return std::holds_alternative<double>(number.variant()) ? DType::kFloat64 : DType::kInt64;
}

// x op number, made anew.
TensorRef with_number(GraphBuilder& graph, const char* op, TensorRef x, DType type,
                      std::vector<Value> more = {}) {
  const TensorRef number = wrapped_number(graph, type), made = like(graph, x);
  more.insert(more.begin(), {x, number});
  graph.begin_op(op, std::move(more));
  cast(graph, number, x);
  return graph.end_with(made);
}

// x op= number
void with_number_(GraphBuilder& graph, const char* op, TensorRef x, DType type,
                  std::vector<Value> more = {}) {
  const TensorRef number = wrapped_number(graph, type);
  more.insert(more.begin(), {x, number});
  graph.begin_op(op, std::move(more));
  cast(graph, number, x);
  graph.end_op({x});
}

}  // namespace

void add_number_(GraphBuilder& graph, TensorRef x, Value number) {
  with_number_(graph, "aten::add_.Tensor", x, type_of(number), {1});
}

void mul_number_(GraphBuilder& graph, TensorRef x) {
  with_number_(graph, "aten::mul_.Tensor", x, DType::kFloat64);
}

TensorRef add_number(GraphBuilder& graph, TensorRef x) {
  return with_number(graph, "aten::add.Tensor", x, DType::kInt64, {1});
}

TensorRef sub_number(GraphBuilder& graph, TensorRef x) {
  return with_number(graph, "aten::sub.Tensor", x, DType::kInt64, {1});
}

TensorRef mul_number(GraphBuilder& graph, TensorRef x, DType number) {
  return with_number(graph, "aten::mul.Tensor", x, number);
}

TensorRef div_number(GraphBuilder& graph, TensorRef x) {
  return with_number(graph, "aten::div.Tensor", x, DType::kFloat64);
}

void add_scalar_(GraphBuilder& graph, TensorRef x, Value number) {
  graph.begin_op("aten::add_.Scalar", {x, number, 1});
  add_number_(graph, x, number);
  graph.end_op({x});
}

// The number comes first: `mul_out` of the wrapped number and the tensor.
void mul_scalar_(GraphBuilder& graph, TensorRef x, Value number) {
  graph.begin_op("aten::mul_.Scalar", {x, number});
  const TensorRef wrapped = wrapped_number(graph, type_of(number));
  graph.begin_op("aten::mul.out", {wrapped, x, x});
  cast(graph, wrapped, x);
  graph.end_op({x});
  graph.end_op({x});
}

void div_scalar_(GraphBuilder& graph, TensorRef x, Value number) {
  graph.begin_op("aten::div_.Scalar", {x, number});
  with_number_(graph, "aten::div_.Tensor", x, DType::kFloat64);
  graph.end_op({x});
}

TensorRef add_scalar(GraphBuilder& graph, TensorRef x, Value number) {
  graph.begin_op("aten::add.Scalar", {x, number, 1});
  const TensorRef made = with_number(graph, "aten::add.Tensor", x, type_of(number), {1});
  return graph.end_with(made);
}

TensorRef mul_scalar(GraphBuilder& graph, TensorRef x, Value number) {
  graph.begin_op("aten::mul.Scalar", {x, number});
  const TensorRef wrapped = wrapped_number(graph, DType::kFloat64), made = like(graph, x);
  graph.begin_op("aten::mul.Tensor", {wrapped, x});
  cast(graph, wrapped, x);
  graph.end_op({made});
  return graph.end_with(made);
}

void add_(GraphBuilder& graph, TensorRef x, TensorRef y, std::int64_t sequence) {
  graph.leaf_op("aten::add_.Tensor", {x, y, 1}, {x}, sequence);
}

void sub_(GraphBuilder& graph, TensorRef x, TensorRef y) {
  graph.leaf_op("aten::sub_.Tensor", {x, y, 1}, {x});
}

void mul_(GraphBuilder& graph, TensorRef x, TensorRef y) {
  graph.leaf_op("aten::mul_.Tensor", {x, y}, {x});
}

void add_scaled_(GraphBuilder& graph, TensorRef x, TensorRef y, Value alpha) {
  graph.leaf_op("aten::add_.Tensor", {x, y, alpha}, {x});
}

TensorRef add_scaled(GraphBuilder& graph, TensorRef x, TensorRef y, Value alpha) {
  return graph.leaf("aten::add.Tensor", {x, y, alpha}, like(graph, x));
}

void lerp_(GraphBuilder& graph, TensorRef x, TensorRef y, double weight) {
  graph.leaf_op("aten::lerp_.Scalar", {x, y, weight}, {x});
}

void addcmul_(GraphBuilder& graph, TensorRef x, TensorRef a, TensorRef b, Value value) {
  graph.leaf_op("aten::addcmul_", {x, a, b, value}, {x});
}

void addcdiv_(GraphBuilder& graph, TensorRef x, TensorRef a, TensorRef b, Value value) {
  graph.leaf_op("aten::addcdiv_", {x, a, b, value}, {x});
}

void div_(GraphBuilder& graph, TensorRef x, TensorRef y) {
  graph.leaf_op("aten::div_.Tensor", {x, y}, {x});
}

void sqrt_(GraphBuilder& graph, TensorRef x) { graph.leaf_op("aten::sqrt_", {x}, {x}); }

TensorRef sqrt(GraphBuilder& graph, TensorRef x) {
  return graph.leaf("aten::sqrt", {x}, like(graph, x));
}

TensorRef reciprocal(GraphBuilder& graph, TensorRef x) {
  return graph.leaf("aten::reciprocal", {x}, like(graph, x));
}

TensorRef sub(GraphBuilder& graph, TensorRef x, TensorRef y) {
  return graph.leaf("aten::sub.Tensor", {x, y, 1}, like(graph, x));
}

TensorRef mul(GraphBuilder& graph, TensorRef x, TensorRef y, std::int64_t sequence) {
  return graph.leaf("aten::mul.Tensor", {x, y}, like(graph, x), sequence);
}

TensorRef div(GraphBuilder& graph, TensorRef x, TensorRef y, std::int64_t sequence) {
  return graph.leaf("aten::div.Tensor", {x, y}, like(graph, x), sequence);
}

TensorRef cpu_number(GraphBuilder& graph) {
  const TensorRef host = graph.new_tensor(DType::kFloat32, GraphBuilder::cpu(), {});
  return tensor_of_python(graph, host, GraphBuilder::cpu(), {}, -1);
}

void item(GraphBuilder& graph, TensorRef x, Value value) {
  graph.begin_op("aten::item", {x});
  graph.leaf_op("aten::_local_scalar_dense", {x}, {value});
  graph.end_op({value});
}

}  // namespace perfmodel
