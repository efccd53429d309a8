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
  to_dtype(graph, number, dtype);
}

namespace {
// dtype, layout, device, not pinned
std::vector<Value> arguments_of(const GraphBuilder& graph, TensorRef made,
                                const TensorOptions& options) {
  std::vector<Value> arguments(4, kNone);
  if (options.dtype) arguments[0] = scalar_type_code(graph.dtype(made));
  if (options.layout) arguments[1] = 0;
  if (options.device) arguments[2] = GraphBuilder::device_value(graph.device(made));
  if (options.pinned) arguments[3] = false;
  return arguments;
}
}  // namespace

void allocate(GraphBuilder& graph, TensorRef made, const TensorOptions& options) {
  std::vector<Value> arguments = arguments_of(graph, made, options);
  arguments.insert(arguments.begin(), graph.shape(made));
  arguments.push_back(options.order ? Value(0) : Value(kNone));
  graph.leaf_op("aten::empty.memory_format", std::move(arguments), {made});
}

void allocate_strided(GraphBuilder& graph, TensorRef made, const Shape& strides,
                      const TensorOptions& options) {
  std::vector<Value> arguments = arguments_of(graph, made, options);
  arguments.insert(arguments.begin(), {graph.shape(made), strides});
  graph.leaf_op("aten::empty_strided", std::move(arguments), {made});
}

void allocate_like(GraphBuilder& graph, TensorRef made, TensorRef x) {
  std::vector<Value> arguments = arguments_of(graph, made, {});
  arguments.insert(arguments.begin(), x);
  arguments.emplace_back(0);
  graph.begin_op("aten::empty_like", std::move(arguments));
  allocate(graph, made, {.order = true});
  graph.end_op({made});
}

TensorRef clone(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  const TensorRef made = like(graph, x);
  graph.begin_op("aten::clone", {x, 0}, sequence);
  allocate_like(graph, made, x);
  copy(graph, made, x);
  return graph.end_with(made);
}

TensorRef contiguous(GraphBuilder& graph, TensorRef x) {
  if (graph.is_contiguous(x)) return x;  // no op is called
  graph.begin_op("aten::contiguous", {x, 0});
  return graph.end_with(clone(graph, x));
}

TensorRef empty(GraphBuilder& graph, DType dtype, Shape shape) {
  const TensorRef made = graph.new_tensor(dtype, std::move(shape));
  allocate(graph, made);
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
  allocate(graph, made, {.layout = false});
  return made;
}

namespace {
// `arguments`: empty_like's arguments after the tensor.
TensorRef empty_like_with(GraphBuilder& graph, TensorRef x, DType dtype,
                          const std::vector<Value>& arguments, std::int64_t sequence = -1) {
  const Shape shape = graph.shape(x);
  const Shape strides = graph.is_dense(x) ? graph.strides(x) : contiguous_strides(shape);
  const TensorRef made = graph.new_tensor(dtype, graph.device(), shape, strides);
  std::vector<Value> all = {x};
  all.insert(all.end(), arguments.begin(), arguments.end());
  graph.begin_op("aten::empty_like", std::move(all), sequence);
  allocate_strided(graph, made, strides);
  return graph.end_with(made);
}
}  // namespace

TensorRef empty_like(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  return empty_like_with(graph, x, graph.dtype(x), {kNone, kNone, kNone, kNone, kNone}, sequence);
}

TensorRef empty_like(GraphBuilder& graph, TensorRef x, DType dtype) {
  return empty_like_with(graph, x, dtype,
                         {scalar_type_code(dtype), 0, graph.device_value(), kNone, kNone});
}

TensorRef empty_like_in_order(GraphBuilder& graph, TensorRef x) {
  return empty_like_with(graph, x, graph.dtype(x), {kNone, kNone, kNone, kNone, 1});
}

TensorRef empty_like_contiguous(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  const TensorRef made = like(graph, x);
  graph.begin_op("aten::empty_like", {x, kNone, kNone, kNone, kNone, 0}, sequence);
  allocate(graph, made, {.order = true});
  return graph.end_with(made);
}

void fill(GraphBuilder& graph, TensorRef x, Value number, std::int64_t sequence) {
  graph.leaf_op("aten::fill_.Scalar", {x, std::move(number)}, {x}, sequence);
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
  if (!small_on_cpu) fill(graph, x, 0);
  graph.end_op({x});
}

TensorRef zeros(GraphBuilder& graph, DType dtype, Shape shape) {
  const TensorRef made = graph.new_tensor(dtype, std::move(shape));
  zeros(graph, made, {});
  return made;
}

void zeros(GraphBuilder& graph, TensorRef made, const TensorOptions& options) {
  std::vector<Value> arguments = arguments_of(graph, made, options);
  arguments.insert(arguments.begin(), graph.shape(made));
  graph.begin_op("aten::zeros", std::move(arguments));
  allocate(graph, made, options);
  zero(graph, made);
  graph.end_op({made});
}

TensorRef zeros_like(GraphBuilder& graph, TensorRef x) {
  graph.begin_op("aten::zeros_like", {x, kNone, kNone, kNone, kNone, kNone});
  const TensorRef made = empty_like(graph, x);
  zero(graph, made);
  return graph.end_with(made);
}

TensorRef zeros_like(GraphBuilder& graph, TensorRef x, DType dtype) {
  graph.begin_op("aten::zeros_like",
                 {x, scalar_type_code(dtype), 0, graph.device_value(), kNone, kNone});
  const TensorRef made = empty_like(graph, x, dtype);
  zero(graph, made);
  return graph.end_with(made);
}

namespace {
std::vector<Value> arguments_of_new(GraphBuilder& graph, TensorRef like_tensor,
                                    const Shape& shape) {
  return {like_tensor,          shape, scalar_type_code(graph.dtype(like_tensor)), 0,
          graph.device_value(), kNone};
}
}  // namespace

TensorRef new_empty(GraphBuilder& graph, TensorRef like_tensor, Shape shape) {
  graph.begin_op("aten::new_empty", arguments_of_new(graph, like_tensor, shape));
  return graph.end_with(empty(graph, graph.dtype(like_tensor), std::move(shape)));
}

TensorRef new_zeros(GraphBuilder& graph, TensorRef like_tensor, Shape shape) {
  graph.begin_op("aten::new_zeros", arguments_of_new(graph, like_tensor, shape));
  const TensorRef made = new_empty(graph, like_tensor, std::move(shape));
  zero(graph, made);
  return graph.end_with(made);
}

TensorRef ones_like(GraphBuilder& graph, TensorRef loss) {
  const TensorRef ones = like(graph, loss);
  const int code = scalar_type_code(graph.dtype(loss));
  // PyTorch before 2.1 spells out the options, which equal the loss's.
  const std::vector<Value> arguments =
      graph.pytorch().before(2, 1)
          ? std::vector<Value>{loss, code, 0, graph.device_value(), false, 1}
          : std::vector<Value>{loss, kNone, kNone, kNone, false, 1};
  graph.begin_op("aten::ones_like", arguments);
  graph.begin_op("aten::empty_like", arguments);
  allocate_strided(graph, ones, graph.strides(loss), {.pinned = true});
  graph.end_op({ones});
  fill(graph, ones, 1.0);
  return graph.end_with(ones);
}

void copy(GraphBuilder& graph, TensorRef to, TensorRef from, bool non_blocking) {
  graph.leaf_op("aten::copy_", {to, from, non_blocking}, {to});
}

namespace {
// One op, without its inner ops.
void convert(GraphBuilder& graph, TensorRef x, TensorRef made, std::int64_t sequence) {
  graph.leaf_op("aten::to.dtype", {x, scalar_type_code(graph.dtype(made)), false, false, kNone},
                {made}, sequence);
}

// The copy inside every `to` that has something to do.
void to_copy(GraphBuilder& graph, TensorRef x, TensorRef made, const ToOptions& options,
             std::int64_t sequence) {
  std::vector<Value> arguments = arguments_of(graph, made, options.tensor);
  arguments.insert(arguments.begin(), x);
  arguments.insert(arguments.end(), {options.non_blocking, kNone});
  graph.begin_op("aten::_to_copy", std::move(arguments), sequence);
  allocate_strided(graph, made, graph.strides(x), {.pinned = true});
  copy(graph, made, x, options.non_blocking);
  graph.end_op({made});
}
}  // namespace

void to_same_dtype(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  convert(graph, x, x, sequence);
}

void to(GraphBuilder& graph, TensorRef x, TensorRef made, const ToOptions& options,
        std::int64_t sequence) {
  std::vector<Value> arguments = arguments_of(graph, made, options.tensor);
  arguments.insert(arguments.begin(), x);
  arguments.insert(arguments.end(), {options.non_blocking, options.always_copies});
  arguments.push_back(options.tensor.order ? Value(0) : Value(kNone));
  graph.begin_op("aten::to.dtype_layout", std::move(arguments), sequence);
  if (made.index != x.index) to_copy(graph, x, made, options, sequence);
  graph.end_op({made});
}

void to_contiguous(GraphBuilder& graph, TensorRef x) {
  to(graph, x, x, {.tensor = {.dtype = false, .layout = false, .device = false, .order = true}});
}

TensorRef to_dtype(GraphBuilder& graph, TensorRef x, DType dtype, std::int64_t sequence) {
  const TensorRef made = graph.new_tensor(dtype, graph.device(x), graph.shape(x));
  to_dtype(graph, x, made, sequence);
  return made;
}

void to_dtype(GraphBuilder& graph, TensorRef x, TensorRef made, std::int64_t sequence) {
  const Value code = scalar_type_code(graph.dtype(made));
  graph.begin_op("aten::to.dtype", {x, code, false, false, kNone}, sequence);
  to_copy(graph, x, made, {.tensor = {.layout = false, .device = false}}, sequence);
  graph.end_op({made});
}

TensorRef to_dtype_alone(GraphBuilder& graph, TensorRef x, DType dtype, std::int64_t sequence) {
  const TensorRef made = graph.new_tensor(dtype, graph.shape(x));
  convert(graph, x, made, sequence);
  return made;
}

void to_list(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.leaf_op("aten::resolve_conj", {x}, {x}, sequence);
  graph.leaf_op("aten::resolve_neg", {x}, {x}, sequence);
  if (graph.device(x).kind == Device::Kind::kCpu) return;
  to(graph, x, graph.new_tensor(graph.dtype(x), GraphBuilder::cpu(), graph.shape(x)), {}, sequence);
}

TensorRef tensor_of_python(GraphBuilder& graph, TensorRef host, Device device,
                           const TensorOptions& copied, std::int64_t sequence) {
  const DType dtype = graph.dtype(host);
  allocate(graph, host, {.pinned = true});
  TensorRef made = host;
  graph.begin_op("aten::to.device", {host, GraphBuilder::device_value(device),
                                     scalar_type_code(dtype), false, false, kNone});
  if (device.kind == Device::Kind::kGpu) {
    made = graph.new_tensor(dtype, device, graph.shape(host));
    to_copy(graph, host, made, {.tensor = copied}, -1);
  }
  graph.end_op({made});
  graph.leaf_op("aten::lift_fresh", {made}, {made});
  graph.begin_op("aten::detach_", {made}, sequence);
  graph.begin_plain("detach_", {made});
  graph.end_op();
  return graph.end_with(made);
}

TensorRef tensor_of_list(GraphBuilder& graph, DType dtype, Device device, std::int64_t count,
                         std::int64_t sequence) {
  const TensorRef host = graph.new_tensor(dtype, GraphBuilder::cpu(), {count});
  return tensor_of_python(graph, host, device, {.layout = false}, sequence);
}

TensorRef to_device(GraphBuilder& graph, TensorRef host, bool non_blocking, std::int64_t sequence) {
  const TensorRef made = graph.new_tensor(graph.dtype(host), graph.shape(host));
  to(graph, host, made, {.non_blocking = non_blocking}, sequence);
  return made;
}

}  // namespace perfmodel
