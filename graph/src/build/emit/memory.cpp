#include "memory.hpp"

#include <utility>

namespace perfmodel {
TensorRef wrapped_number(GraphBuilder& graph, DType dtype) {
  return graph.new_tensor(dtype, graph.cpu(), {});
}

TensorRef like(GraphBuilder& graph, TensorRef x) {
  return graph.new_tensor(graph.dtype(x), graph.device(x), graph.shape(x));
}

void cast_wrapped_number(GraphBuilder& graph, TensorRef number, DType dtype) {
  if (graph.pytorch().on_gpu() || graph.dtype(number) == dtype) return;
  const int code = scalar_type_code(dtype);
  const TensorRef made = graph.new_tensor(dtype, graph.cpu(), {});
  graph.begin_op("aten::to.dtype", {number, code, false, false, kNone});
  graph.begin_op("aten::_to_copy", {number, code, kNone, kNone, kNone, false, kNone});
  graph.leaf_op("aten::empty_strided", {Shape{}, Shape{}, code, 0, graph.device_value(), false},
                {made});
  copy(graph, made, number);
  graph.end_op({made});
  graph.end_op({made});
}

TensorRef clone(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  const Value dtype = scalar_type_code(graph.dtype(x)), device = graph.device_value();
  const TensorRef made = like(graph, x);
  graph.begin_op("aten::clone", {x, 0}, sequence);
  graph.begin_op("aten::empty_like", {x, dtype, 0, device, kNone, 0});
  graph.leaf_op("aten::empty.memory_format", {graph.shape(x), dtype, 0, device, kNone, 0}, {made});
  graph.end_op({made});
  copy(graph, made, x);
  graph.end_op({made});
  return made;
}

TensorRef contiguous(GraphBuilder& graph, TensorRef x) {
  if (graph.is_contiguous(x)) return x;  // no op is called
  graph.begin_op("aten::contiguous", {x, 0});
  const TensorRef made = clone(graph, x);
  graph.end_op({made});
  return made;
}

TensorRef empty(GraphBuilder& graph, DType dtype, Shape shape) {
  const TensorRef made = graph.new_tensor(dtype, shape);
  graph.leaf_op("aten::empty.memory_format",
                {shape, scalar_type_code(dtype), 0, graph.device_value(), kNone, kNone}, {made});
  return made;
}

void empty_into(GraphBuilder& graph, TensorRef made, Value format) {
  graph.leaf_op("aten::empty.memory_format",
                {graph.shape(made), scalar_type_code(graph.dtype(made)), 0, graph.device_value(),
                 kNone, std::move(format)},
                {made});
}

TensorRef empty_bytes(GraphBuilder& graph, std::int64_t count) {
  const TensorRef made = graph.new_tensor(DType::kUInt8, {count});
  graph.leaf_op(
      "aten::empty.memory_format",
      {Shape{count}, scalar_type_code(DType::kUInt8), kNone, graph.device_value(), kNone, kNone},
      {made});
  return made;
}

namespace {
// `arguments`: those of empty_like after the tensor.
TensorRef empty_like_with(GraphBuilder& graph, TensorRef x, DType dtype,
                          const std::vector<Value>& arguments, std::int64_t sequence = -1) {
  const Shape shape = graph.shape(x);
  const Shape strides = graph.is_dense(x) ? graph.strides(x) : contiguous_strides(shape);
  const TensorRef made = graph.new_tensor(dtype, graph.device(), shape, strides);
  std::vector<Value> all = {x};
  all.insert(all.end(), arguments.begin(), arguments.end());
  graph.begin_op("aten::empty_like", std::move(all), sequence);
  graph.leaf_op("aten::empty_strided",
                {shape, strides, scalar_type_code(dtype), 0, graph.device_value(), kNone}, {made});
  graph.end_op({made});
  return made;
}
}  // namespace

TensorRef empty_like(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  return empty_like_with(graph, x, graph.dtype(x), {kNone, kNone, kNone, kNone, kNone}, sequence);
}

TensorRef empty_like(GraphBuilder& graph, TensorRef x, DType dtype) {
  return empty_like_with(graph, x, dtype,
                         {scalar_type_code(dtype), 0, graph.device_value(), kNone, kNone});
}

TensorRef empty_like_contiguous(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  const TensorRef made = like(graph, x);
  graph.begin_op("aten::empty_like", {x, kNone, kNone, kNone, kNone, 0}, sequence);
  graph.leaf_op(
      "aten::empty.memory_format",
      {graph.shape(x), scalar_type_code(graph.dtype(x)), 0, graph.device_value(), kNone, 0},
      {made});
  graph.end_op({made});
  return made;
}

namespace {
// No entries are left.
void zero_sparse(GraphBuilder& graph, TensorRef sparse, std::int64_t sequence) {
  const Shape shape = graph.shape(sparse);
  const auto rank = static_cast<std::int64_t>(shape.size());
  graph.begin_op("aten::zero_", {sparse}, sequence);
  graph.begin_op("aten::zeros.out", {shape, sparse});
  graph.begin_op("aten::sparse_resize_and_clear_", {sparse, shape, rank, 0});
  const TensorRef indices = empty(graph, DType::kInt64, {rank, 0});
  const TensorRef values = empty(graph, graph.dtype(sparse), {0});
  graph.end_op({sparse});
  graph.end_op({sparse});
  graph.leaf_op("aten::_coalesced_", {sparse, true}, {sparse});
  graph.end_op({sparse});
  graph.set_sparse_parts(sparse, indices, values);
}
}  // namespace

void zero(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  if (graph.is_sparse(x)) return zero_sparse(graph, x, sequence);
  constexpr std::int64_t kGrainSize = 32768;  // at::internal::GRAIN_SIZE: memset below it
  graph.begin_op("aten::zero_", {x}, sequence);
  const bool small_on_cpu =
      graph.device(x).kind == Device::Kind::kCpu && graph.numel(x) < kGrainSize;
  if (!small_on_cpu) graph.leaf_op("aten::fill_.Scalar", {x, 0}, {x});
  graph.end_op({x});
}

TensorRef zeros(GraphBuilder& graph, DType dtype, Shape shape) {
  graph.begin_op("aten::zeros", {shape, scalar_type_code(dtype), 0, graph.device_value(), kNone});
  const TensorRef made = empty(graph, dtype, std::move(shape));
  zero(graph, made);
  graph.end_op({made});
  return made;
}

TensorRef zeros_like(GraphBuilder& graph, TensorRef x) {
  graph.begin_op("aten::zeros_like", {x, kNone, kNone, kNone, kNone, kNone});
  const TensorRef made = empty_like(graph, x);
  zero(graph, made);
  graph.end_op({made});
  return made;
}

TensorRef zeros_like(GraphBuilder& graph, TensorRef x, DType dtype) {
  graph.begin_op("aten::zeros_like",
                 {x, scalar_type_code(dtype), 0, graph.device_value(), kNone, kNone});
  const TensorRef made = empty_like(graph, x, dtype);
  zero(graph, made);
  graph.end_op({made});
  return made;
}

TensorRef new_zeros(GraphBuilder& graph, TensorRef like_tensor, Shape shape) {
  const DType dtype = graph.dtype(like_tensor);
  const std::vector<Value> arguments = {like_tensor,          shape, scalar_type_code(dtype), 0,
                                        graph.device_value(), kNone};
  graph.begin_op("aten::new_zeros", arguments);
  graph.begin_op("aten::new_empty", arguments);
  const TensorRef made = empty(graph, dtype, std::move(shape));
  graph.end_op({made});
  zero(graph, made);
  graph.end_op({made});
  return made;
}

TensorRef ones_like(GraphBuilder& graph, TensorRef loss) {
  const TensorRef ones = like(graph, loss);
  const int code = scalar_type_code(graph.dtype(loss));
  // PyTorch before 2.1 spells out the options that are those of the loss.
  const std::vector<Value> arguments =
      graph.pytorch().before(2, 1)
          ? std::vector<Value>{loss, code, 0, graph.device_value(), false, 1}
          : std::vector<Value>{loss, kNone, kNone, kNone, false, 1};
  graph.begin_op("aten::ones_like", arguments);
  graph.begin_op("aten::empty_like", arguments);
  graph.leaf_op("aten::empty_strided", {Shape{}, Shape{}, code, 0, graph.device_value(), false},
                {ones});
  graph.end_op({ones});
  graph.leaf_op("aten::fill_.Scalar", {ones, 1.0}, {ones});
  graph.end_op({ones});
  return ones;
}

void copy(GraphBuilder& graph, TensorRef to, TensorRef from, bool non_blocking) {
  graph.leaf_op("aten::copy_", {to, from, non_blocking}, {to});
}

void to_same_dtype(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.leaf_op("aten::to.dtype", {x, scalar_type_code(graph.dtype(x)), false, false, kNone}, {x},
                sequence);
}

namespace {
// The copy inside every `to` that has something to do. `dtype`, `layout`, `device`: as given.
TensorRef to_copy(GraphBuilder& graph, TensorRef x, const TensorRef made, Value layout,
                  Value device, std::int64_t sequence) {
  const int dtype = scalar_type_code(graph.dtype(made));
  graph.begin_op("aten::_to_copy",
                 {x, dtype, std::move(layout), std::move(device), kNone, false, kNone}, sequence);
  graph.leaf_op("aten::empty_strided",
                {graph.shape(x), graph.strides(x), dtype, 0,
                 GraphBuilder::device_value(graph.device(made)), false},
                {made});
  copy(graph, made, x);
  graph.end_op({made});
  return made;
}
}  // namespace

TensorRef to_dtype(GraphBuilder& graph, TensorRef x, DType dtype, std::int64_t sequence) {
  const TensorRef made = graph.new_tensor(dtype, graph.device(x), graph.shape(x));
  graph.begin_op("aten::to.dtype", {x, scalar_type_code(dtype), false, false, kNone}, sequence);
  to_copy(graph, x, made, kNone, kNone, sequence);
  graph.end_op({made});
  return made;
}

void to_list(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.leaf_op("aten::resolve_conj", {x}, {x}, sequence);
  graph.leaf_op("aten::resolve_neg", {x}, {x}, sequence);
  if (graph.device(x).kind == Device::Kind::kCpu) return;
  const Value cpu = GraphBuilder::device_value(GraphBuilder::cpu());
  const TensorRef made = graph.new_tensor(graph.dtype(x), GraphBuilder::cpu(), graph.shape(x));
  graph.begin_op("aten::to.dtype_layout",
                 {x, scalar_type_code(graph.dtype(x)), 0, cpu, kNone, false, false, kNone},
                 sequence);
  to_copy(graph, x, made, 0, cpu, sequence);
  graph.end_op({made});
}

TensorRef tensor_of_list(GraphBuilder& graph, DType dtype, Device device, std::int64_t count,
                         std::int64_t sequence) {
  const int code = scalar_type_code(dtype);
  const Value target = GraphBuilder::device_value(device);
  const TensorRef host = graph.new_tensor(dtype, GraphBuilder::cpu(), {count});
  graph.leaf_op(
      "aten::empty.memory_format",
      {Shape{count}, code, 0, GraphBuilder::device_value(GraphBuilder::cpu()), false, kNone},
      {host});
  TensorRef made = host;
  graph.begin_op("aten::to.device", {host, target, code, false, false, kNone});
  if (device.kind == Device::Kind::kGpu) {
    made = to_copy(graph, host, graph.new_tensor(dtype, device, {count}), kNone, target, -1);
  }
  graph.end_op({made});
  graph.leaf_op("aten::lift_fresh", {made}, {made});
  graph.begin_op("aten::detach_", {made}, sequence);
  graph.begin_plain("detach_", {made});
  graph.end_op();
  graph.end_op({made});
  return made;
}

TensorRef to_device(GraphBuilder& graph, TensorRef host, bool non_blocking, std::int64_t sequence) {
  const Shape& shape = graph.shape(host);
  const int dtype = scalar_type_code(graph.dtype(host));
  const Value device = graph.device_value();
  const TensorRef made = graph.new_tensor(graph.dtype(host), shape);
  graph.begin_op("aten::to.dtype_layout",
                 {host, dtype, 0, device, kNone, non_blocking, false, kNone}, sequence);
  graph.begin_op("aten::_to_copy", {host, dtype, 0, device, kNone, non_blocking, kNone}, sequence);
  graph.leaf_op("aten::empty_strided",
                {graph.shape(host), graph.strides(host), dtype, 0, device, false}, {made});
  copy(graph, made, host, non_blocking);
  graph.end_op({made});
  graph.end_op({made});
  return made;
}

}  // namespace perfmodel
