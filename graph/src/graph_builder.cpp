#include "graph_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "aten_ops.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

// Schemas as PyTorch 2 and FBGEMM 0.4 register them. The text before '(' is the key.
// clang-format off
constexpr std::array kSchemas = {
    "aten::_coalesced_(Tensor(a!) self, bool coalesced) -> Tensor(a!)",
    "aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)",
    "aten::_embedding_bag_backward(Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, Tensor bag_size, Tensor maximum_indices, SymInt num_weights, bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, int padding_idx=-1) -> Tensor",
    "aten::_embedding_bag_sparse_backward(Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, Tensor bag_size, SymInt num_weights, bool scale_grad_by_freq, int mode, Tensor? per_sample_weights, int padding_idx=-1) -> Tensor",
    "aten::_foreach_add.Scalar(Tensor[] self, Scalar scalar) -> Tensor[]",
    "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()",
    "aten::_foreach_add_.Scalar(Tensor(a!)[] self, Scalar scalar) -> ()",
    "aten::_foreach_add_.Tensor(Tensor(a!)[] self, Tensor other, *, Scalar alpha=1) -> ()",
    "aten::_foreach_addcdiv_.Scalar(Tensor(a!)[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar value=1) -> ()",
    "aten::_foreach_addcmul_.Scalar(Tensor(a!)[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar value=1) -> ()",
    "aten::_foreach_mul.ScalarList(Tensor[] self, Scalar[] scalars) -> Tensor[]",
    "aten::_foreach_sqrt(Tensor[] self) -> Tensor[]",
    "aten::_index_put_impl_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False, bool unsafe=False) -> Tensor(a!)",
    "aten::_indices(Tensor(a) self) -> Tensor(a)",
    "aten::_local_scalar_dense(Tensor self) -> Scalar",
    "aten::_nnz(Tensor self) -> int",
    "aten::_sparse_coo_tensor_unsafe(Tensor indices, Tensor values, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool? is_coalesced=None) -> Tensor",
    "aten::_sparse_coo_tensor_with_dims_and_tensors(int sparse_dim, int dense_dim, SymInt[] size, Tensor indices, Tensor values, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=False, bool? is_coalesced=None) -> Tensor",
    "aten::_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
    "aten::_values(Tensor(a) self) -> Tensor(a)",
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
    "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
    "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    "aten::arange(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    "aten::arange.start_out(Scalar start, Scalar end, Scalar step=1, *, Tensor(a!) out) -> Tensor(a!)",
    "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
    "aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor",
    "aten::binary_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight=None, int reduction=1) -> Tensor",
    "aten::bmm(Tensor self, Tensor mat2) -> Tensor",
    "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
    "aten::clamp_min(Tensor self, Scalar min) -> Tensor",
    "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    "aten::contiguous(Tensor(a) self, *, MemoryFormat memory_format=0) -> Tensor(a)",
    "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
    "aten::detach(Tensor(a) self) -> Tensor(a)",
    "aten::div_.Scalar(Tensor(a!) self, Scalar other) -> Tensor(a!)",
    "aten::div_.Scalar_mode(Tensor(a!) self, Scalar other, *, str? rounding_mode) -> Tensor(a!)",
    "aten::div_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    "aten::div_.Tensor_mode(Tensor(a!) self, Tensor other, *, str? rounding_mode) -> Tensor(a!)",
    "aten::divide_.Scalar_mode(Tensor(a!) self, Scalar other, *, str? rounding_mode) -> Tensor(a!)",
    "aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
    "aten::embedding_sparse_backward(Tensor grad, Tensor indices, int num_weights, int padding_idx, bool scale_grad_by_freq) -> Tensor",
    "aten::empty.memory_format(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    "aten::empty_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    "aten::empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    "aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
    "aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)",
    "aten::fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)",
    "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
    "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)",
    "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor",
    "aten::is_coalesced(Tensor self) -> bool",
    "aten::item(Tensor self) -> Scalar",
    "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    "aten::mm(Tensor self, Tensor mat2) -> Tensor",
    "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor",
    "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor",
    "aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)",
    "aten::new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    "aten::new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    "aten::ones_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    "aten::relu(Tensor self) -> Tensor",
    "aten::remainder.Scalar(Tensor self, Scalar other) -> Tensor",
    "aten::remainder.Tensor(Tensor self, Tensor other) -> Tensor",
    "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)",
    "aten::resize_(Tensor(a!) self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor(a!)",
    "aten::resize_as_(Tensor(a!) self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor(a!)",
    "aten::result_type.Scalar(Tensor tensor, Scalar other) -> ScalarType",
    "aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)",
    "aten::sigmoid(Tensor self) -> Tensor",
    "aten::sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor",
    "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
    "aten::slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, SymInt step) -> Tensor",
    "aten::squeeze(Tensor(a) self) -> Tensor(a)",
    "aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)",
    "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    "aten::t(Tensor(a) self) -> Tensor(a)",
    "aten::threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor",
    "aten::to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
    "aten::to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)",
    "aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
    "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)",
    "aten::zero_(Tensor(a!) self) -> Tensor(a!)",
    "aten::zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    "aten::zeros_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    "fbgemm::bounds_check_indices(Tensor rows_per_table, Tensor(a!) indices, Tensor(b!) offsets, int bounds_check_mode, Tensor(c!) warning, Tensor(d!)? weights=None) -> ()",
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function(Tensor placeholder_autograd_tensor, Tensor dev_weights, Tensor uvm_weights, Tensor lxu_cache_weights, Tensor weights_placements, Tensor weights_offsets, Tensor D_offsets, int total_D, int max_D, Tensor hash_size_cumsum, int total_hash_size_bits, Tensor indices, Tensor offsets, int pooling_mode, Tensor? indice_weights, Tensor? feature_requires_grad, Tensor lxu_cache_locations, bool gradient_clipping, float max_gradient, bool stochastic_rounding, Tensor momentum1_dev, Tensor momentum1_uvm, Tensor momentum1_placements, Tensor momentum1_offsets, float eps=0., float learning_rate=0., float weight_decay=0.0, int weight_decay_mode=0, int output_dtype=0) -> Tensor",
    "fbgemm::split_embedding_codegen_lookup_sgd_function(Tensor placeholder_autograd_tensor, Tensor dev_weights, Tensor uvm_weights, Tensor lxu_cache_weights, Tensor weights_placements, Tensor weights_offsets, Tensor D_offsets, int total_D, int max_D, Tensor hash_size_cumsum, int total_hash_size_bits, Tensor indices, Tensor offsets, int pooling_mode, Tensor? indice_weights, Tensor? feature_requires_grad, Tensor lxu_cache_locations, bool gradient_clipping, float max_gradient, bool stochastic_rounding, float learning_rate=0., int output_dtype=0) -> Tensor",
};
// clang-format on

std::string_view schema_of(std::string_view op) {
  static const std::unordered_map<std::string_view, std::string_view> kByName = [] {
    std::unordered_map<std::string_view, std::string_view> map;
    for (std::string_view schema : kSchemas)
      map.emplace(schema.substr(0, schema.find('(')), schema);
    return map;
  }();
  const auto known = kByName.find(op);
  PERFMODEL_CHECK(known != kByName.end());  // an op without schema: add it to the table
  return known->second;
}

}  // namespace

int scalar_type_code(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return 0;
    case DType::kInt8:
      return 1;
    case DType::kInt16:
      return 2;
    case DType::kInt32:
      return 3;
    case DType::kInt64:
      return 4;
    case DType::kFloat16:
      return 5;
    case DType::kFloat32:
      return 6;
    case DType::kFloat64:
      return 7;
    case DType::kComplex64:
      return 9;
    case DType::kComplex128:
      return 10;
    case DType::kBool:
      return 11;
    case DType::kBFloat16:
      return 15;
    case DType::kFloat8:
      return 24;
    case DType::kUnknown:
      break;
  }
  return -1;
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

// ------------------------------------------------------------------------------------ GraphBuilder

GraphBuilder::GraphBuilder() {
  graph_.schema = "1.1.1-chakra.0.0.4";
  graph_.source = "built";
  graph_.built = true;
  Node& process = open_node("[pytorch|profiler|execution_trace|process]", {}, Scope::kUser);
  process.parent_id = process.id;  // the root is its own parent
  stacks_[0] = {0};
  switch_thread(kMainThread);
}

void GraphBuilder::switch_thread(std::int32_t thread) {
  thread_ = thread;
  if (!stack().empty()) return;
  Node& node = open_node("[pytorch|profiler|execution_trace|thread]", {}, Scope::kUser);
  node.parent_id = graph_.nodes.front().id;
}

ExecutionGraph GraphBuilder::finish() {
  for (const auto& [thread, open] : stacks_) PERFMODEL_CHECK(open.size() == 1);
  index_graph(graph_);
  return std::move(graph_);
}

Value GraphBuilder::device_value(Device device) {
  return Value::Opaque{device.kind == Device::Kind::kGpu ? fmt::format("cuda:{}", device.index)
                                                         : "cpu"};
}

const GraphBuilder::TensorState& GraphBuilder::state(TensorRef tensor) const {
  PERFMODEL_CHECK(tensor.exists());
  return tensors_[static_cast<std::size_t>(tensor.index)];
}

TensorRef GraphBuilder::add(TensorState tensor) {
  tensors_.push_back(std::move(tensor));
  return {static_cast<std::int32_t>(tensors_.size() - 1)};
}

TensorRef GraphBuilder::new_tensor(DType dtype, Device device, Shape shape) {
  TensorState tensor{.dtype = dtype, .device = device};
  tensor.strides = contiguous_strides(shape);
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
  return t.strides == contiguous_strides(t.shape);
}

void GraphBuilder::begin_op(std::string_view op, std::vector<Value> inputs, std::int64_t sequence) {
  const std::string_view schema = schema_of(op);
  Node& node = open_node(op.substr(0, op.find('.')), inputs, Scope::kFunction);
  node.op_schema = graph_.names.intern(schema);
  node.seq_id = sequence;
}

void GraphBuilder::end_op(std::vector<Value> outputs) {
  PERFMODEL_CHECK(stack().size() > 1);
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

void GraphBuilder::begin_label(std::string_view name) { open_node(name, {}, Scope::kUser); }

void GraphBuilder::begin_plain(std::string_view name, std::vector<Value> inputs) {
  open_node(name, inputs, Scope::kFunction);
}

void GraphBuilder::begin_backward_function(std::string_view name, TensorRef gradient,
                                           std::int64_t sequence) {
  const std::int64_t forward_top = graph_.nodes[stacks_[kMainThread].back()].id;
  Node& node = open_node(name, {gradient}, Scope::kBackward);
  node.seq_id = sequence;
  node.fw_parent = forward_top;
  node.fw_thread = kMainThread;
}

Node& GraphBuilder::open_node(std::string_view name, const std::vector<Value>& inputs,
                              Scope scope) {
  Node node;
  std::tie(node.inputs_begin, node.inputs_count) = append(inputs);
  node.id = next_id();
  node.name = graph_.names.intern(name);
  node.thread = thread_;
  node.scope = scope;
  if (!stack().empty()) {
    node.parent_id = graph_.nodes[stack().back()].id;
    node.rf_id = ++last_rf_id_;
  }
  stack().push_back(graph_.nodes.size());
  graph_.nodes.push_back(node);
  return graph_.nodes.back();
}

// Elements of lists are appended first, so that the values themselves lie side by side.
std::pair<std::uint32_t, std::uint32_t> GraphBuilder::append(const std::vector<Value>& values) {
  std::vector<Argument> made;
  made.reserve(values.size());
  for (const Value& value : values) made.push_back(argument(value));
  const auto begin = static_cast<std::uint32_t>(graph_.arguments.size());
  graph_.arguments.insert(graph_.arguments.end(), made.begin(), made.end());
  return {begin, static_cast<std::uint32_t>(made.size())};
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
  TensorState& from = tensors_[static_cast<std::size_t>(ref.index)];
  if (from.id == 0) from.id = next_id();
  Tensor tensor;
  tensor.id = from.id;
  if (from.storage >= 0) {
    std::int64_t& storage = storage_ids_[static_cast<std::size_t>(from.storage)];
    if (storage == 0) storage = next_id();
    tensor.storage_id = storage;
    tensor.offset = from.offset;
    tensor.numel = numel(ref);
    tensor.item_size = size_in_bytes(from.dtype);
    tensor.device = from.device;
  }
  tensor.dtype = from.dtype;
  tensor.shape_begin = static_cast<std::uint32_t>(graph_.shape_pool.size());
  tensor.rank = static_cast<std::uint16_t>(from.shape.size());
  graph_.shape_pool.insert(graph_.shape_pool.end(), from.shape.begin(), from.shape.end());
  graph_.tensors.push_back(tensor);
  return static_cast<std::uint32_t>(graph_.tensors.size() - 1);
}

// ------------------------------------------------------------------------------------ AutogradTape

namespace {
constexpr std::string_view kAccumulateGrad = "torch::autograd::AccumulateGrad";
}

void AutogradTape::add_parameter(TensorRef tensor) {
  producer_[tensor.index] = static_cast<int>(nodes_.size());
  TapeNode& node = nodes_.emplace_back();
  node.name = kAccumulateGrad;
  node.backward = [this, tensor](TensorRef gradient) -> std::vector<TensorRef> {
    accumulate_parameter(tensor, gradient);
    return {};
  };
}

void AutogradTape::record(std::string name, const std::vector<TensorRef>& inputs, TensorRef output,
                          Backward backward) {
  TapeNode node;
  node.name = std::move(name);
  node.sequence = next_sequence_++;
  node.backward = std::move(backward);
  for (TensorRef input : inputs) {
    const auto producer = producer_.find(input.index);
    node.edges.push_back(
        {producer == producer_.end() ? -1 : producer->second, builder_.shape(input)});
  }
  producer_[output.index] = static_cast<int>(nodes_.size());
  nodes_.push_back(std::move(node));
}

TensorRef AutogradTape::gradient(TensorRef parameter) const {
  const auto at = gradients_.find(parameter.index);
  PERFMODEL_CHECK(at != gradients_.end());
  return at->second;
}

void AutogradTape::count_pending(int root) {
  std::vector<int> walk = {root};
  std::vector<bool> seen(nodes_.size(), false);
  seen[static_cast<std::size_t>(root)] = true;
  while (!walk.empty()) {
    const TapeNode& node = nodes_[static_cast<std::size_t>(walk.back())];
    walk.pop_back();
    for (const Edge& edge : node.edges) {
      if (edge.target < 0) continue;
      const auto target = static_cast<std::size_t>(edge.target);
      ++nodes_[target].pending;
      if (!seen[target]) walk.push_back(edge.target);
      seen[target] = true;
    }
  }
}

void AutogradTape::run(TensorRef loss) {
  const TensorRef ones = builder_.new_gpu_tensor(builder_.dtype(loss), builder_.shape(loss));
  const Value device = GraphBuilder::device_value(builder_.gpu());
  const int code = scalar_type_code(builder_.dtype(loss));
  builder_.begin_op("aten::ones_like", {loss, kNone, kNone, kNone, false, 1});
  builder_.begin_op("aten::empty_like", {loss, kNone, kNone, kNone, false, 1});
  builder_.leaf_op("aten::empty_strided", {Shape{}, Shape{}, code, 0, device, false}, {ones});
  builder_.end_op({ones});
  builder_.leaf_op("aten::fill_.Scalar", {ones, 1.0}, {ones});
  builder_.end_op({ones});

  const int root = producer_.at(loss.index);
  count_pending(root);
  nodes_[static_cast<std::size_t>(root)].buffer = ones;
  ready_ = {root};
  builder_.switch_thread(GraphBuilder::kAutogradThread);
  while (!ready_.empty()) {
    const auto next = std::max_element(ready_.begin(), ready_.end(), [this](int a, int b) {
      // As unsigned numbers, -1 (a parameter) is the largest.
      return static_cast<std::uint64_t>(nodes_[static_cast<std::size_t>(a)].sequence) <
             static_cast<std::uint64_t>(nodes_[static_cast<std::size_t>(b)].sequence);
    });
    const int node = *next;
    ready_.erase(next);
    evaluate(node);
  }
  builder_.switch_thread(GraphBuilder::kMainThread);
}

void AutogradTape::evaluate(int index) {
  const TapeNode& node = nodes_[static_cast<std::size_t>(index)];
  builder_.begin_plain("autograd::engine::evaluate_function: " + node.name);
  builder_.begin_backward_function(node.name, node.buffer, node.sequence);
  std::vector<TensorRef> gradients = node.backward(node.buffer);
  builder_.end_op();
  PERFMODEL_CHECK(gradients.size() == node.edges.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (node.edges[i].target >= 0 && gradients[i].exists()) {
      gradients[i] = reduce_to(gradients[i], node.edges[i].shape);
    }
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (node.edges[i].target >= 0) deliver(node.edges[i].target, gradients[i]);
  }
  builder_.end_op();
}

// A gradient of an input that was broadcast along its first axis.
TensorRef AutogradTape::reduce_to(TensorRef gradient, const Shape& shape) {
  const Shape& from = builder_.shape(gradient);
  if (from == shape) return gradient;
  PERFMODEL_CHECK(from.size() == shape.size() + 1);
  Shape kept = from;
  kept[0] = 1;
  const TensorRef sum = builder_.new_gpu_tensor(builder_.dtype(gradient), kept);
  builder_.leaf_op("aten::sum.dim_IntList", {gradient, Shape{0}, true, kNone}, {sum});
  const TensorRef view = builder_.new_view(sum, shape, contiguous_strides(shape));
  builder_.leaf_op("aten::view", {sum, shape}, {view});
  return view;
}

void AutogradTape::deliver(int target, TensorRef gradient) {
  TapeNode& node = nodes_[static_cast<std::size_t>(target)];
  if (!node.buffer.exists()) {
    node.buffer = gradient;
    node.owned = !builder_.is_view(gradient) && builder_.is_contiguous(gradient);
  } else if (node.owned) {
    builder_.leaf_op("aten::add_.Tensor", {node.buffer, gradient, 1}, {node.buffer});
  } else {
    const TensorRef sum =
        builder_.new_gpu_tensor(builder_.dtype(gradient), builder_.shape(gradient));
    builder_.leaf_op("aten::add.Tensor", {node.buffer, gradient, 1}, {sum});
    node.buffer = sum;
    node.owned = true;
  }
  if (--node.pending == 0) ready_.push_back(target);
}

// Gradients are None before the backward pass, so the first one becomes the parameter's own.
void AutogradTape::accumulate_parameter(TensorRef parameter, TensorRef gradient) {
  if (builder_.is_sparse(gradient)) {
    gradients_[parameter.index] = share_sparse(builder_, gradient);
    return;
  }
  const TensorRef kept =
      builder_.new_view(gradient, builder_.shape(gradient), builder_.strides(gradient));
  builder_.begin_op("aten::detach", {gradient});
  builder_.begin_plain("detach", {gradient});
  builder_.end_op();
  builder_.end_op({kept});
  gradients_[parameter.index] = kept;
}

}  // namespace perfmodel
