#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/detail/recording.hpp"
#include "perfmodel/graph/detail/string_pool.hpp"

namespace perfmodel {

enum class DType : std::uint8_t {
  kUnknown,
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8,
  kFloat4,  ///< packed, as PyTorch's float4_e2m1fn_x2: an element is a byte that holds two numbers
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kComplex64,
  kComplex128,
};

/// Element type of a PyTorch type name: "float", "long int", "long", "c10::BFloat16", ...
DType parse_dtype(std::string_view torch_name);
std::string_view to_string(DType dtype);
int size_in_bytes(DType dtype);  ///< 0 when unknown
bool is_floating_point(DType dtype);

/// Where a tensor lives. `kNone`: no storage (undefined tensor). `kMeta`: PyTorch's device without
/// memory, on which a program is captured that will run on a GPU.
struct Device {
  enum class Kind : std::uint8_t { kNone, kCpu, kGpu, kOther, kMeta } kind = Kind::kNone;
  std::int16_t index = -1;
  friend bool operator==(Device, Device) = default;
};

/// One tensor reference of one argument. Ids are addresses and are reused: never a version.
struct Tensor {
  std::int64_t id = 0;
  std::int64_t storage_id = 0;  ///< 0: no storage
  std::int64_t offset = 0;      ///< elements
  std::int64_t numel = 0;       ///< elements
  std::int32_t item_size = 0;   ///< bytes
  DType dtype = DType::kUnknown;
  Device device;
  std::uint32_t shape_begin = 0;  ///< into ExecutionGraph::shape_pool
  std::uint16_t rank = 0;
  bool is_channels_last = false;  ///< images [n, c, h, w] whose channels are dense (NHWC)

  std::int64_t bytes() const { return numel * item_size; }
  bool on_gpu() const { return device.kind == Device::Kind::kGpu; }
  bool on_cpu() const { return device.kind == Device::Kind::kCpu; }
  bool on_meta() const { return device.kind == Device::Kind::kMeta; }
};

/// Whether images of these extents and strides [elements] are channels-last. Images of one
/// channel or one pixel have one order only: false.
bool lie_channels_last(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

/// One argument or result: a scalar, a tensor, or a list (its children are contiguous in the pool).
struct Argument {
  enum class Kind : std::uint8_t {
    kNone,    ///< "<None>": an optional that was not given
    kTensor,  ///< `index` into ExecutionGraph::tensors
    kInt,
    kDouble,
    kBool,    ///< `integer` is 0 or 1
    kString,  ///< `index` is a NameId
    kList,    ///< `count` children from `index` on in ExecutionGraph::arguments
    kOpaque,  ///< "<Object>", "<Stream>", "<Storage>", ...
  } kind = Kind::kNone;
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  std::int64_t integer = 0;
  double real = 0;
};

enum class Scope : std::uint8_t { kFunction = 0, kBackward = 1, kUser = 7, kOther = 255 };

/// Communication attributes of a `record_param_comms` node, from its attributes or its arguments.
struct CommRecord {
  std::string collective;  ///< "allreduce", "all_to_allv", "wait", "init", ...
  std::int64_t sequence = -1;
  std::string process_group;    ///< name, or the number in old schemas
  std::int64_t group_size = 0;  ///< 0: not recorded
  std::vector<std::int64_t> in_splits, out_splits;
};

struct Node {
  std::int64_t id = 0, parent_id = 0;
  std::int32_t parent = -1;  ///< index; -1 for the root and for orphans
  NameId name = 0;
  std::int64_t rf_id = 0, fw_parent = 0;
  std::int64_t seq_id = -1;  ///< autograd sequence number, -1: none
  std::int32_t thread = 0;   ///< the profiler's small number: 1 main, 2 autograd, ...
  std::int32_t fw_thread = 0;
  Scope scope = Scope::kFunction;
  bool is_label = false;       ///< marks a region; no op
  bool is_structural = false;  ///< process, thread and similar bookkeeping nodes (labels too)
  bool is_orphan = false;      ///< its parent id is in no node of the file
  std::uint32_t inputs_begin = 0, inputs_count = 0;      ///< into arguments
  std::uint32_t outputs_begin = 0, outputs_count = 0;    ///< into arguments
  std::uint32_t children_begin = 0, children_count = 0;  ///< into child_indices
  std::int32_t comm = -1;                                ///< into comm_records
  NameId op_schema = 0;
  NameId kernel_backend = 0;  ///< "triton" or empty
  NameId kernel_file = 0;
  /// Time of the kernels of this op and its inner ops, instead of a predicted one; -1: predicted.
  /// Rewrites set both (perfmodel/graph/rewrite.hpp).
  double kernel_time_us = -1;
  double kernel_time_scale = 1;  ///< factor on that time
  /// Zipf exponent of the indices of a lookup (perfmodel/graph/rewrites/resize.hpp).
  double index_zipf_exponent = 0;
};

struct ProcessGroup {
  std::string name, description, backend;
  std::vector<std::int64_t> ranks;  ///< empty: all ranks
  std::int64_t size = 0;
};

/// A recorded or built graph of one process: ops with shapes, no times.
///
/// Nodes are sorted by id, which is start order over all threads. Flat pools hold everything that a
/// node owns, so a graph of a million nodes takes a dozen allocations.
struct ExecutionGraph {
  std::string schema;  ///< "1.0.1", "1.1.1-chakra.0.0.4", ...
  /// File it was read from; "built" for graphs without a recording, "model gpt2" for a known
  /// model's that nothing changed.
  std::string source;
  bool built = false;  ///< made by a builder, not recorded
  /// Matrix products of fp32 tensors may run in TF32 (torch.backends.cuda.matmul.allow_tf32).
  /// Recordings do not tell; convolutions have a setting of their own.
  bool allow_tf32 = false;
  /// A capture's description of itself, the JSON object `captured` in the file's head; empty: not
  /// captured. Its assumptions are the first warnings.
  std::string captured;
  std::int64_t process_id = 0;

  StringPool names;
  std::vector<Node> nodes;
  std::vector<std::int32_t> child_indices;
  std::vector<Argument> arguments;
  std::vector<Tensor> tensors;
  std::vector<std::int64_t> shape_pool;
  std::vector<CommRecord> comm_records;
  std::vector<ProcessGroup> process_groups;
  Recording recording;  ///< the trace's, if the graph was made from one
  std::vector<std::string> warnings;

  /// A node by its index, as parents and children give it.
  const Node& node(std::int32_t index) const { return nodes[static_cast<std::size_t>(index)]; }
  Node& node(std::int32_t index) { return nodes[static_cast<std::size_t>(index)]; }

  /// The nearest of a node and the nodes around it for which `holds(index)` is true; -1: none.
  template <class Holds>
  std::int32_t find_around(std::int32_t index, Holds&& holds) const {
    while (index >= 0 && !holds(index)) index = node(index).parent;
    return index;
  }
  /// Whether a node is the node `outer` or inside it, if parents come before their children.
  bool is_inside(std::int32_t index, std::int32_t outer) const {
    while (index > outer) index = node(index).parent;
    return index == outer;
  }

  std::string_view name(const Node& node) const { return names.text(node.name); }
  std::span<const std::int32_t> children(const Node& node) const {
    return {child_indices.data() + node.children_begin, node.children_count};
  }
  std::span<const Argument> inputs(const Node& node) const {
    return {arguments.data() + node.inputs_begin, node.inputs_count};
  }
  std::span<const Argument> outputs(const Node& node) const {
    return {arguments.data() + node.outputs_begin, node.outputs_count};
  }
  std::span<const Argument> elements(const Argument& list) const {
    return {arguments.data() + list.index, list.count};
  }
  std::span<const std::int64_t> shape(const Tensor& tensor) const {
    return {shape_pool.data() + tensor.shape_begin, tensor.rank};
  }

  /// The same by the index of the node.
  std::string_view name(std::int32_t index) const { return name(node(index)); }
  std::span<const std::int32_t> children(std::int32_t index) const { return children(node(index)); }
  std::span<const Argument> inputs(std::int32_t index) const { return inputs(node(index)); }
  std::span<const Argument> outputs(std::int32_t index) const { return outputs(node(index)); }
};

/// Calls `visit(const Tensor&)` for every tensor in the arguments, lists of lists included.
template <class Visit>
void for_each_tensor(const ExecutionGraph& graph, std::span<const Argument> arguments,
                     Visit&& visit) {
  for (const Argument& argument : arguments) {
    if (argument.kind == Argument::Kind::kTensor) {
      visit(graph.tensors[argument.index]);
    } else if (argument.kind == Argument::Kind::kList) {
      for_each_tensor(graph, graph.elements(argument), visit);
    }
  }
}

/// Fills parents, children, labels and thread structure of `graph` from ids; nodes get sorted by
/// id. Every reader and builder ends with this call.
void index_graph(ExecutionGraph& graph);

/// Indices of the top-level ops in start order: ops none of whose ancestors is an op.
std::vector<std::int32_t> top_level_ops(const ExecutionGraph& graph);

/// One training step of a graph: nodes [begin, end) in id order that belong to it.
struct GraphIteration {
  std::string name;  ///< "ProfilerStep#5", or "iteration" where the graph has no marker
  std::int32_t begin = 0, end = 0;  ///< node indices
};

/// Steps that hold at least one top-level op. A graph without ProfilerStep nodes is one iteration.
std::vector<GraphIteration> iterations(const ExecutionGraph& graph);

/// For every node: index of the forward op whose gradient it computes, or -1. Matches scope-1 nodes
/// by sequence number; of several forward nodes with one number the highest id is the
/// differentiable op.
std::vector<std::int32_t> forward_partners(const ExecutionGraph& graph);

struct DataEdge {
  std::int32_t from = 0, to = 0;  ///< node indices, from < to
};
enum class DataEdgeKey { kTensor, kStorage };

/// Read-after-write edges between leaf nodes, by the last writer in id order of each tensor id or
/// storage id (ids are reused, so an id alone is no dependency). Each pair is listed once.
std::vector<DataEdge> data_edges(const ExecutionGraph& graph, DataEdgeKey key);

}  // namespace perfmodel
