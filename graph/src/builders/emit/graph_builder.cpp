#include "graph_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/budget.hpp"
#include "ops/rows.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

int scalar_type_code(DType dtype) {
  switch (dtype) {
    case DType::kUInt8: return 0;
    case DType::kInt8: return 1;
    case DType::kInt16: return 2;
    case DType::kInt32: return 3;
    case DType::kInt64: return 4;
    case DType::kFloat16: return 5;
    case DType::kFloat32: return 6;
    case DType::kFloat64: return 7;
    case DType::kComplex64: return 9;
    case DType::kComplex128: return 10;
    case DType::kBool: return 11;
    case DType::kBFloat16: return 15;
    case DType::kFloat8: return 24;
    case DType::kFloat4: return 45;
    case DType::kUnknown: break;
  }
  return -1;
}

std::int64_t sum_of(const Shape& amounts) {
  return std::accumulate(amounts.begin(), amounts.end(), std::int64_t{0});
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

GraphBuilder::GraphBuilder(const PyTorch& pytorch) : pytorch_(pytorch) {
  graph_.schema = "1.1.1-chakra.0.0.4";
  graph_.source = "built";
  graph_.built = true;
  Node& process = open_node("[pytorch|profiler|execution_trace|process]", {}, Scope::kUser);
  process.parent_id = process.id;  // the root is its own parent
  stacks_[0] = {0};
  switch_thread(kMainThread);
}

// New nodes follow the copied ones; without room for them all would be copied once more.
template <class Entry>
static std::vector<Entry> copy_with_room(const std::vector<Entry>& source) {
  std::vector<Entry> copy;
  copy.reserve(source.size() + source.size() / 4);
  copy.assign(source.begin(), source.end());
  return copy;
}

// All of a graph but its nodes.
static ExecutionGraph without_nodes(const ExecutionGraph& source) {
  return {.schema = source.schema,
          .source = source.source,
          .built = source.built,
          .allow_tf32 = source.allow_tf32,
          .captured = source.captured,
          .process_id = source.process_id,
          .names = source.names,
          .nodes = {},
          .child_indices = {},
          .arguments = copy_with_room(source.arguments),
          .tensors = copy_with_room(source.tensors),
          .shape_pool = copy_with_room(source.shape_pool),
          .comm_records = source.comm_records,
          .process_groups = source.process_groups,
          .recording = source.recording,
          .warnings = source.warnings};
}

GraphBuilder::GraphBuilder(const ExecutionGraph& source, const PyTorch& pytorch)
    : pytorch_(pytorch), graph_(without_nodes(source)), copies_(true) {
  for (const Tensor& tensor : source.tensors) {
    last_id_ = std::max({last_id_, tensor.id, tensor.storage_id});
  }
  graph_.nodes.reserve(source.nodes.size());
}

std::int64_t GraphBuilder::next_node_id() {
  return copies_ ? static_cast<std::int64_t>(graph_.nodes.size()) + 1 : next_id();
}

// The memory of a vector that grows on: it doubles when it is full.
template <class Entry>
static std::uint64_t bytes_of(const std::vector<Entry>& entries) {
  constexpr std::size_t kSoon = 8192;
  const bool doubles = entries.capacity() - entries.size() < kSoon;
  return (doubles ? 2 : 1) * entries.capacity() * sizeof(Entry);
}

// Asks at each node and tensor, now and then, whether the graph may grow on. A node has some five
// tensors and ten arguments; if it has more, they count as nodes.
static void ask_to_grow(const ExecutionGraph& graph, std::size_t tensors) {
  constexpr std::size_t kOften = 256, kTensors = 8, kArguments = 32;
  if ((graph.nodes.size() + tensors) % kOften != 0) return;
  constexpr std::uint64_t kState = 176;  // bytes that a tensor's state and its shapes take
  growth_point(
      std::max({graph.nodes.size(), tensors / kTensors, graph.arguments.size() / kArguments}),
      bytes_of(graph.nodes) + bytes_of(graph.arguments) + bytes_of(graph.tensors) +
          bytes_of(graph.shape_pool) + kState * tensors);
}

void GraphBuilder::copy_node(const Node& source) {
  thread_ = source.thread;
  Node node = source;
  node.id = next_node_id();
  if (stack().empty()) {
    node.parent_id =
        source.parent_id == source.id || graph_.nodes.empty() ? node.id : graph_.nodes.front().id;
  } else {
    node.parent_id = graph_.nodes[stack().back()].id;
    node.rf_id = ++last_rf_id_;
  }
  stack().push_back(graph_.nodes.size());
  graph_.nodes.push_back(node);
  ask_to_grow(graph_, tensors_.size());
}

TensorRef GraphBuilder::tensor_of_source(std::uint32_t index, const Shape* strides) {
  return tensor_of_source(graph_.tensors[index], strides);
}

TensorRef GraphBuilder::tensor_of_source(const Tensor& from, const Shape* strides) {
  const auto sizes = graph_.shape(from);
  TensorState tensor{.dtype = from.dtype, .device = from.device};
  tensor.shape.assign(sizes.begin(), sizes.end());
  const bool given = strides && strides->size() == tensor.shape.size();
  tensor.strides = given ? *strides : contiguous_strides(tensor.shape);
  tensor.offset = from.offset;
  tensor.id = from.id;
  tensor.channels_last = from.is_channels_last;
  if (from.storage_id != 0) {
    const auto [at, inserted] = storages_of_source_.try_emplace(
        from.storage_id, static_cast<std::int32_t>(storage_ids_.size()));
    if (inserted) storage_ids_.push_back(from.storage_id);
    tensor.storage = at->second;
  }
  return add(std::move(tensor));
}

void GraphBuilder::switch_thread(std::int32_t thread) {
  thread_ = thread;
  if (!stack().empty()) return;
  Node& node = open_node("[pytorch|profiler|execution_trace|thread]", {}, Scope::kUser);
  node.parent_id = graph_.nodes.front().id;  // itself, if nothing was copied yet
}

void GraphBuilder::close_to(std::int32_t thread, std::size_t position) {
  thread_ = thread;
  std::vector<std::size_t>& open = stack();
  const auto at = std::find(open.begin(), open.end(), position);
  if (at == open.end()) {
    open = {position};
  } else {
    open.erase(at + 1, open.end());
  }
}

ExecutionGraph GraphBuilder::finish() {
  for (const auto& [thread, open] : stacks_) PERFMODEL_CHECK(copies_ || open.size() == 1);
  index_graph(graph_);
  return std::move(graph_);
}

Value GraphBuilder::device_value(Device device) {
  return Value::Opaque{device.kind == Device::Kind::kGpu ? fmt::format("cuda:{}", device.index)
                                                         : "cpu"};
}

const GraphBuilder::TensorState& GraphBuilder::state(TensorRef tensor) const {
  if (!tensor.exists()) throw Contradiction("an op lacks one of its tensors");
  return tensors_[tensor.index];
}

TensorRef GraphBuilder::add(TensorState tensor) {
  ask_to_grow(graph_, tensors_.size());
  tensors_.push_back(std::move(tensor));
  return {static_cast<std::int32_t>(tensors_.size() - 1)};
}

TensorRef GraphBuilder::new_tensor(DType dtype, Device device, Shape shape) {
  Shape strides = contiguous_strides(shape);
  return new_tensor(dtype, device, std::move(shape), std::move(strides));
}

TensorRef GraphBuilder::new_tensor(DType dtype, Device device, Shape shape, Shape strides) {
  TensorState tensor{.dtype = dtype, .device = device};
  tensor.strides = std::move(strides);
  tensor.shape = std::move(shape);
  tensor.storage = static_cast<std::int32_t>(storage_ids_.size());
  storage_ids_.push_back(0);
  return add(std::move(tensor));
}

TensorRef GraphBuilder::new_view(TensorRef base, Shape shape, Shape strides, std::int64_t offset) {
  TensorState tensor = state(base);
  tensor.shape = std::move(shape);
  tensor.strides = std::move(strides);
  tensor.offset += offset;
  tensor.id = 0;
  tensor.view = true;
  return add(std::move(tensor));
}

TensorRef GraphBuilder::new_sparse(Shape shape, TensorRef indices, TensorRef values) {
  TensorState tensor{.dtype = dtype(values), .indices = indices, .values = values};
  tensor.strides = contiguous_strides(shape);
  tensor.shape = std::move(shape);
  return add(std::move(tensor));
}

void GraphBuilder::set_sparse_parts(TensorRef sparse, TensorRef indices, TensorRef values) {
  TensorState& tensor = tensors_[sparse.index];
  PERFMODEL_CHECK(tensor.storage < 0);
  tensor.indices = indices;
  tensor.values = values;
}

TensorRef GraphBuilder::undefined() {
  if (!undefined_.exists()) undefined_ = add(TensorState{});
  return undefined_;
}

std::int64_t GraphBuilder::numel(TensorRef tensor) const {
  if (tensor.index == undefined_.index) return 0;
  const Shape& sizes = shape(tensor);
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

bool GraphBuilder::is_contiguous(TensorRef tensor) const {
  const TensorState& t = state(tensor);
  std::int64_t expected = 1;
  for (std::size_t i = t.shape.size(); i-- > 0;) {
    if (t.shape[i] == 1) continue;  // its stride is never used
    if (t.strides[i] != expected) return false;
    expected *= t.shape[i];
  }
  return true;
}

bool GraphBuilder::is_dense(TensorRef tensor) const {
  const TensorState& t = state(tensor);
  std::vector<std::size_t> axes;
  for (std::size_t i = 0; i < t.shape.size(); ++i) {
    if (t.shape[i] != 1) axes.push_back(i);
  }
  std::sort(axes.begin(), axes.end(),
            [&t](std::size_t a, std::size_t b) { return t.strides[a] < t.strides[b]; });
  std::int64_t expected = 1;
  for (std::size_t axis : axes) {
    if (t.strides[axis] != expected) return false;
    expected *= t.shape[axis];
  }
  return true;
}

void GraphBuilder::begin_op(std::string_view op, std::vector<Value> inputs, std::int64_t sequence) {
  const std::string_view schema = schema_of(op);
  Node& node = open_node(op.substr(0, op.find('.')), inputs, Scope::kFunction);
  node.op_schema = graph_.names.intern(schema);
  node.seq_id = sequence;
}

void GraphBuilder::end_op(std::vector<Value> outputs) {
  PERFMODEL_CHECK(stack().size() > (copies_ ? 0U : 1U));  // orphans have no thread around them
  const auto [begin, count] = append(outputs);
  Node& node = graph_.nodes[stack().back()];
  node.outputs_begin = begin;
  node.outputs_count = count;
  stack().pop_back();
}

void GraphBuilder::leaf_op(std::string_view op, std::vector<Value> inputs,
                           std::vector<Value> outputs, std::int64_t sequence) {
  begin_op(op, std::move(inputs), sequence);
  end_op(std::move(outputs));
}

void GraphBuilder::begin_label(std::string_view name, std::vector<Value> inputs) {
  open_node(name, inputs, Scope::kUser);
}

void GraphBuilder::begin_plain(std::string_view name, std::vector<Value> inputs,
                               std::int64_t sequence) {
  open_node(name, inputs, Scope::kFunction).seq_id = sequence;
}

void GraphBuilder::begin_communication(CommRecord record, std::vector<Value> inputs) {
  Node& node = open_node("record_param_comms", inputs, Scope::kFunction);
  node.comm = static_cast<std::int32_t>(graph_.comm_records.size());
  graph_.comm_records.push_back(std::move(record));
}

void GraphBuilder::begin_backward_function(std::string_view name,
                                           const std::vector<TensorRef>& gradients,
                                           std::int64_t sequence) {
  const std::vector<std::size_t>& forward = stacks_[kMainThread];
  const std::int64_t forward_top = forward.empty() ? 0 : graph_.nodes[forward.back()].id;
  Node& node =
      open_node(name, std::vector<Value>(gradients.begin(), gradients.end()), Scope::kBackward);
  node.seq_id = sequence;
  node.fw_parent = forward_top;
  node.fw_thread = kMainThread;
}

Node& GraphBuilder::open_node(std::string_view name, const std::vector<Value>& inputs,
                              Scope scope) {
  Node node;
  std::tie(node.inputs_begin, node.inputs_count) = append(inputs);
  node.id = next_node_id();
  node.name = graph_.names.intern(name);
  node.thread = thread_;
  node.scope = scope;
  if (!stack().empty()) {
    node.parent_id = graph_.nodes[stack().back()].id;
    node.rf_id = ++last_rf_id_;
  }
  stack().push_back(graph_.nodes.size());
  graph_.nodes.push_back(node);
  ask_to_grow(graph_, tensors_.size());
  return graph_.nodes.back();
}

// Elements of lists are appended first, so that the values themselves are contiguous.
std::pair<std::uint32_t, std::uint32_t> GraphBuilder::append(const std::vector<Value>& values) {
  std::vector<Argument> made;
  made.reserve(values.size());
  for (const Value& value : values) made.push_back(argument(value));
  const auto begin = static_cast<std::uint32_t>(graph_.arguments.size());
  graph_.arguments.insert(graph_.arguments.end(), made.begin(), made.end());
  return {begin, static_cast<std::uint32_t>(made.size())};
}

std::pair<std::uint32_t, std::uint32_t> GraphBuilder::copy_arguments(std::uint32_t begin,
                                                                     std::uint32_t count) {
  std::vector<Argument> copies(graph_.arguments.begin() + begin,
                               graph_.arguments.begin() + begin + count);
  for (Argument& copy : copies) {
    if (copy.kind == Argument::Kind::kTensor) {
      const Tensor tensor = graph_.tensors[copy.index];
      copy.index = static_cast<std::uint32_t>(graph_.tensors.size());
      graph_.tensors.push_back(tensor);
    } else if (copy.kind == Argument::Kind::kList) {
      copy.index = copy_arguments(copy.index, copy.count).first;
    }
  }
  const auto at = static_cast<std::uint32_t>(graph_.arguments.size());
  graph_.arguments.insert(graph_.arguments.end(), copies.begin(), copies.end());
  return {at, count};
}

Argument GraphBuilder::argument(const Value& value) {
  using Kind = Argument::Kind;
  struct Convert {
    GraphBuilder& builder;
    Argument operator()(Value::None) const { return {}; }
    Argument operator()(TensorRef tensor) const {
      return {.kind = Kind::kTensor, .index = builder.tensor_entry(tensor)};
    }
    Argument operator()(std::int64_t number) const {
      return {.kind = Kind::kInt, .integer = number, .real = static_cast<double>(number)};
    }
    Argument operator()(double number) const { return {.kind = Kind::kDouble, .real = number}; }
    Argument operator()(bool flag) const { return {.kind = Kind::kBool, .integer = flag}; }
    Argument operator()(const std::string& text) const {
      return {.kind = Kind::kString, .index = builder.graph_.names.intern(text)};
    }
    Argument operator()(const Value::Opaque& opaque) const {
      return {.kind = Kind::kOpaque, .index = builder.graph_.names.intern(opaque.text)};
    }
    Argument operator()(const Value::List& list) const {
      const auto [begin, count] = builder.append(list);
      return {.kind = Kind::kList, .index = begin, .count = count};
    }
  };
  return std::visit(Convert{*this}, value.variant());
}

std::uint32_t GraphBuilder::tensor_entry(TensorRef ref) {
  if (!ref.exists()) throw Contradiction("an op lacks one of its tensors");
  TensorState& from = tensors_[ref.index];
  if (from.id == 0) from.id = next_id();
  Tensor tensor;
  tensor.id = from.id;
  if (from.storage >= 0) {
    std::int64_t& storage = storage_ids_[from.storage];
    if (storage == 0) storage = next_id();
    tensor.storage_id = storage;
    tensor.offset = from.offset;
    tensor.numel = numel(ref);
    tensor.item_size = size_in_bytes(from.dtype);
    tensor.device = from.device;
  }
  tensor.dtype = from.dtype;
  tensor.is_channels_last = from.channels_last;
  tensor.shape_begin = static_cast<std::uint32_t>(graph_.shape_pool.size());
  tensor.rank = static_cast<std::uint16_t>(from.shape.size());
  graph_.shape_pool.insert(graph_.shape_pool.end(), from.shape.begin(), from.shape.end());
  graph_.tensors.push_back(tensor);
  return static_cast<std::uint32_t>(graph_.tensors.size() - 1);
}

}  // namespace perfmodel
