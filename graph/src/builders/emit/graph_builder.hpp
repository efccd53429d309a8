#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "perfmodel/graph/detail/pytorch.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// A tensor of the graph under construction; -1: no tensor.
struct TensorRef {
  std::int32_t index = -1;
  bool exists() const { return index >= 0; }
};

using Shape = std::vector<std::int64_t>;

/// Thrown if a graph that is being rewritten contradicts itself, so that an op cannot be written:
/// sizes, missing tensors. apply_rewrites() makes it an error.
struct Contradiction : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One argument of an op.
class Value {
 public:
  using List = std::vector<Value>;
  struct None {};
  struct Opaque {  // "cuda:0", "<Object>", ...
    std::string text;
  };

  Value(None value) : value_(value) {}
  Value(TensorRef tensor) : value_(tensor) {}
  Value(int number) : value_(std::int64_t{number}) {}
  Value(std::int64_t number) : value_(number) {}
  Value(double number) : value_(number) {}
  Value(bool flag) : value_(flag) {}
  Value(const char* text) : value_(std::string(text)) {}
  Value(Opaque opaque) : value_(std::move(opaque)) {}
  Value(List list) : value_(std::move(list)) {}
  Value(const Shape& sizes) : value_(List(sizes.begin(), sizes.end())) {}
  Value(const std::vector<TensorRef>& tensors) : value_(List(tensors.begin(), tensors.end())) {}

  const auto& variant() const { return value_; }

 private:
  std::variant<None, TensorRef, std::int64_t, double, bool, std::string, Opaque, List> value_;
};

inline constexpr Value::None kNone{};

/// Number by which PyTorch ops name a dtype in their arguments (float 6, long 4, ...).
int scalar_type_code(DType dtype);

/// Strides of a dense row-major tensor.
Shape contiguous_strides(const Shape& shape);
std::int64_t sum_of(const Shape& amounts);

/// Writes nodes in the order in which PyTorch's observer numbers them: one counter gives ids to new
/// input tensors and their storages, then to the op, then (after its children) to its new outputs.
/// Ids are never reused, unlike in a recording.
class GraphBuilder {
 public:
  static constexpr std::int32_t kMainThread = 1, kAutogradThread = 2;

  explicit GraphBuilder(const PyTorch& pytorch = {});

  /// Starts with the tensors and arguments of `source` but none of its nodes: for graphs that are
  /// copied node by node and changed on the way (see GraphCopy).
  GraphBuilder(const ExecutionGraph& source, const PyTorch& pytorch);

  const PyTorch& pytorch() const { return pytorch_; }
  Device device() const { return pytorch_.device; }  ///< device on which the model computes
  static constexpr Device cpu() { return {.kind = Device::Kind::kCpu, .index = -1}; }
  static Value device_value(Device device);
  Value device_value() const { return device_value(device()); }

  TensorRef new_tensor(DType dtype, Device device, Shape shape);
  TensorRef new_tensor(DType dtype, Shape shape) { return new_tensor(dtype, device(), shape); }
  /// With the axes in another order in memory than row-major.
  TensorRef new_tensor(DType dtype, Device device, Shape shape, Shape strides);
  /// A tensor of `source`, by its index there; known by its ids, taken as dense unless the strides
  /// are given.
  TensorRef tensor_of_source(std::uint32_t index, const Shape* strides = nullptr);
  /// The same for a tensor that the graph being made knows by these ids.
  TensorRef tensor_of_source(const Tensor& from, const Shape* strides = nullptr);
  /// A tensor as nodes mention it.
  Tensor mention_of(TensorRef tensor) { return graph_.tensors[argument(tensor).index]; }
  /// Another mention of a tensor, for arguments of copied nodes.
  Argument tensor_argument(TensorRef tensor) { return argument(tensor); }
  /// An id for a tensor or a storage that a rewrite writes into a copied node itself.
  std::int64_t new_id() { return next_id(); }
  /// Shares the storage of `base`; `offset` in elements from the start of `base`.
  TensorRef new_view(TensorRef base, Shape shape, Shape strides, std::int64_t offset = 0);
  /// A sparse COO tensor, of which the observer sees neither storage nor device.
  TensorRef new_sparse(Shape shape, TensorRef indices, TensorRef values);
  /// An op in place has given a sparse tensor other entries.
  void set_sparse_parts(TensorRef sparse, TensorRef indices, TensorRef values);
  TensorRef undefined();

  const Shape& shape(TensorRef tensor) const { return state(tensor).shape; }
  const Shape& strides(TensorRef tensor) const { return state(tensor).strides; }
  std::int64_t offset(TensorRef tensor) const { return state(tensor).offset; }
  std::int64_t numel(TensorRef tensor) const;
  DType dtype(TensorRef tensor) const { return state(tensor).dtype; }
  Device device(TensorRef tensor) const { return state(tensor).device; }
  bool is_view(TensorRef tensor) const { return state(tensor).view; }
  bool is_sparse(TensorRef tensor) const { return state(tensor).storage < 0; }
  bool is_contiguous(TensorRef tensor) const;
  /// Every element of its storage region belongs to the tensor once, in whatever order.
  bool is_dense(TensorRef tensor) const;
  /// Tensors with the same number share their memory; -1: none.
  std::int32_t storage(TensorRef tensor) const { return state(tensor).storage; }
  TensorRef sparse_indices(TensorRef sparse) const { return state(sparse).indices; }
  TensorRef sparse_values(TensorRef sparse) const { return state(sparse).values; }

  /// Opens an op. `op` is its name with overload ("aten::sum.dim_IntList"), by which its schema is
  /// looked up; the node is called "aten::sum". `sequence`: autograd's number, -1 inside an op
  /// that autograd handles as a whole.
  void begin_op(std::string_view op, std::vector<Value> inputs, std::int64_t sequence = -1);
  void end_op(std::vector<Value> outputs = {});
  void leaf_op(std::string_view op, std::vector<Value> inputs, std::vector<Value> outputs,
               std::int64_t sequence = -1);
  /// The same for one result, which they return.
  template <class Result>
  Result end_with(Result result) {
    end_op({result});
    return result;
  }
  TensorRef leaf(std::string_view op, std::vector<Value> inputs, TensorRef result,
                 std::int64_t sequence = -1) {
    leaf_op(op, std::move(inputs), {result}, sequence);
    return result;
  }

  /// Opens a region that is no op ("ProfilerStep#0"); closed by end_op().
  void begin_label(std::string_view name, std::vector<Value> inputs = {});

  /// Opens the scope-1 node of a backward function; the forward thread's stack top is its
  /// `fw_parent`.
  void begin_backward_function(std::string_view name, const std::vector<TensorRef>& gradients,
                               std::int64_t sequence);
  /// Opens a node without schema, e.g. "autograd::engine::evaluate_function: ..."
  void begin_plain(std::string_view name, std::vector<Value> inputs = {},
                   std::int64_t sequence = -1);
  /// Opens a `record_param_comms` node, which describes a collective.
  void begin_communication(CommRecord record, std::vector<Value> inputs);

  void switch_thread(std::int32_t thread);
  std::int32_t thread() const { return thread_; }

  /// Opens a node that is the same as `node` of the source except for its id and its parent, which
  /// is the node that is open on its thread. Its outputs are the node's own: end it with close().
  void copy_node(const Node& node);
  void close() { stack().pop_back(); }
  /// Arguments [begin, begin + count) once more, tensors and lists too: begin and count of theirs.
  std::pair<std::uint32_t, std::uint32_t> copy_arguments(std::uint32_t begin, std::uint32_t count);
  /// Makes arguments of values.
  std::pair<std::uint32_t, std::uint32_t> append(const std::vector<Value>& values);
  void close_thread(std::int32_t thread) { stacks_[thread].clear(); }
  /// Goes to a thread and closes its open nodes inside the node at `position`; one that was closed
  /// is opened again.
  void close_to(std::int32_t thread, std::size_t position);
  /// Position of the innermost node that is open on this thread.
  std::size_t innermost() { return stack().back(); }
  ExecutionGraph& graph_being_made() { return graph_; }

  /// Everything that was opened is closed; hands over the indexed graph.
  ExecutionGraph finish();

 private:
  struct TensorState {
    DType dtype = DType::kUnknown;
    Device device = {};
    Shape shape = {}, strides = {};
    std::int64_t offset = 0;
    std::int32_t storage = -1;  // into storage_ids_, -1: none
    std::int64_t id = 0;        // 0: the observer has not met it yet
    bool view = false;
    bool channels_last = false;           // one of a source, as that says
    TensorRef indices = {}, values = {};  // parts of a sparse tensor
  };

  const TensorState& state(TensorRef tensor) const;
  TensorRef add(TensorState tensor);
  std::int64_t next_id() { return ++last_id_; }
  // Copied graphs number their nodes anew; tensors follow the largest id of the source.
  std::int64_t next_node_id();
  std::vector<std::size_t>& stack() { return stacks_[thread_]; }
  Node& open_node(std::string_view name, const std::vector<Value>& inputs, Scope scope);
  Argument argument(const Value& value);
  std::uint32_t tensor_entry(TensorRef tensor);

  PyTorch pytorch_;
  ExecutionGraph graph_;
  bool copies_ = false;
  std::deque<TensorState> tensors_;  // shapes are handed out by reference
  std::vector<std::int64_t> storage_ids_;
  std::map<std::int32_t, std::vector<std::size_t>> stacks_;  // open nodes per thread
  std::int32_t thread_ = 0;
  std::int64_t last_id_ = 0, last_rf_id_ = 0;
  std::unordered_map<std::int64_t, std::int32_t> storages_of_source_;  // id -> storage_ids_
  TensorRef undefined_;
};

}  // namespace perfmodel
