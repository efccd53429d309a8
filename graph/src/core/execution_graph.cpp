#include "perfmodel/graph/execution_graph.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bytes;
};
constexpr std::array<DTypeRow, 15> kDTypes = {{{DType::kUnknown, "unknown", 0},
                                               {DType::kFloat64, "float64", 8},
                                               {DType::kFloat32, "float32", 4},
                                               {DType::kFloat16, "float16", 2},
                                               {DType::kBFloat16, "bfloat16", 2},
                                               {DType::kFloat8, "float8", 1},
                                               {DType::kFloat4, "float4", 1},
                                               {DType::kInt64, "int64", 8},
                                               {DType::kInt32, "int32", 4},
                                               {DType::kInt16, "int16", 2},
                                               {DType::kInt8, "int8", 1},
                                               {DType::kUInt8, "uint8", 1},
                                               {DType::kBool, "bool", 1},
                                               {DType::kComplex64, "complex64", 8},
                                               {DType::kComplex128, "complex128", 16}}};

const DTypeRow& row(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

// Cutting parent cycles is the reader's job; here a walk is bounded so that no input can hang it.
bool has_op_ancestor(const ExecutionGraph& graph, const Node& node) {
  const auto is_op = [&](std::int32_t i) { return !graph.node(i).is_label; };
  return graph.find_around(node.parent, is_op) >= 0;
}

}  // namespace

DType parse_dtype(std::string_view name) {
  static const std::unordered_map<std::string_view, DType> kNames = {
      {"double", DType::kFloat64},
      {"float", DType::kFloat32},
      {"c10::Half", DType::kFloat16},
      {"Half", DType::kFloat16},
      {"c10::BFloat16", DType::kBFloat16},
      {"BFloat16", DType::kBFloat16},
      {"c10::Float8_e4m3fn", DType::kFloat8},
      {"c10::Float8_e5m2", DType::kFloat8},
      {"c10::Float8_e4m3fnuz", DType::kFloat8},
      {"c10::Float8_e5m2fnuz", DType::kFloat8},
      {"c10::Float8_e8m0fnu", DType::kFloat8},
      {"Float8_e4m3fn", DType::kFloat8},
      {"Float8_e5m2", DType::kFloat8},
      {"c10::Float4_e2m1fn_x2", DType::kFloat4},
      {"long", DType::kInt64},
      {"long int", DType::kInt64},
      {"long long", DType::kInt64},
      {"long unsigned int", DType::kInt64},  // unsigned types count by their width
      {"unsigned long", DType::kInt64},
      {"unsigned int", DType::kInt32},
      {"unsigned short", DType::kInt16},
      {"short unsigned int", DType::kInt16},
      {"int", DType::kInt32},
      {"short", DType::kInt16},
      {"short int", DType::kInt16},
      {"signed char", DType::kInt8},
      {"char", DType::kInt8},
      {"unsigned char", DType::kUInt8},
      {"bool", DType::kBool},
      {"c10::complex<float>", DType::kComplex64},
      {"c10::complex<double>", DType::kComplex128},
      {"float64", DType::kFloat64},
      {"float32", DType::kFloat32},
      {"float16", DType::kFloat16},
      {"bfloat16", DType::kBFloat16},
      {"int64", DType::kInt64},
      {"int32", DType::kInt32},
      {"Float", DType::kFloat32},
      {"Double", DType::kFloat64},
      {"Long", DType::kInt64},
      {"Int", DType::kInt32},
      {"Byte", DType::kUInt8},
      {"Bool", DType::kBool}};
  const auto known = kNames.find(name);
  return known == kNames.end() ? DType::kUnknown : known->second;
}

bool lie_channels_last(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  if (shape.size() < 4 || strides.size() != shape.size() || shape[1] <= 1) return false;
  std::int64_t dense = shape[1], pixels = 1;
  for (std::size_t i = shape.size(); i-- > 2;) {
    if (shape[i] > 1 && strides[i] != dense) return false;
    dense *= shape[i];
    pixels *= shape[i];
  }
  return strides[1] == 1 && pixels > 1;
}

std::string_view to_string(DType dtype) { return row(dtype).name; }
int size_in_bytes(DType dtype) { return row(dtype).bytes; }
bool is_floating_point(DType dtype) { return dtype >= DType::kFloat64 && dtype <= DType::kFloat4; }

namespace {
/// Keys are sorted in the place of the nodes, which are many times as large.
void sort_by_id(std::vector<Node>& nodes) {
  if (std::ranges::is_sorted(nodes, {}, &Node::id)) return;
  std::vector<std::pair<std::int64_t, std::size_t>> order;
  order.reserve(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) order.emplace_back(nodes[i].id, i);
  std::ranges::sort(order);
  std::vector<Node> sorted;
  sorted.reserve(nodes.size());
  for (const auto& [id, place] : order) sorted.push_back(nodes[place]);
  nodes.swap(sorted);
}
}  // namespace

void index_graph(ExecutionGraph& graph) {
  auto& nodes = graph.nodes;
  sort_by_id(nodes);
  const auto index_of = [&](std::int64_t id) -> std::int32_t {
    const auto at = std::lower_bound(nodes.begin(), nodes.end(), id,
                                     [](const Node& node, std::int64_t x) { return node.id < x; });
    return at != nodes.end() && at->id == id ? static_cast<std::int32_t>(at - nodes.begin()) : -1;
  };
  std::vector<std::int8_t> label_by_name(graph.names.size(), -1);
  for (Node& node : nodes) {
    const bool self_parent = node.parent_id == node.id;
    node.parent = self_parent ? -1 : index_of(node.parent_id);
    node.is_orphan = !self_parent && node.parent < 0 && node.parent_id != 0;
    auto& label = label_by_name[node.name];
    if (label < 0) label = is_label_name(graph.name(node)) ? 1 : 0;
    node.is_structural = is_structural_name(graph.name(node)) || self_parent;
    node.is_label = label == 1 || node.scope == Scope::kUser || node.is_structural;
    node.children_count = 0;
  }
  for (Node& node : nodes) {
    if (node.parent < 0) continue;
    ++nodes[node.parent].children_count;
    // A thread is in the process: what is deeper and has such a name is a label like any other.
    node.is_structural = node.is_structural && nodes[node.parent].parent < 0;
  }
  std::uint32_t begin = 0;
  for (Node& node : nodes) {
    node.children_begin = begin;
    begin += std::exchange(node.children_count, 0);
  }
  graph.child_indices.resize(begin);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].parent < 0) continue;
    Node& parent = nodes[nodes[i].parent];
    graph.child_indices[parent.children_begin + parent.children_count++] =
        static_cast<std::int32_t>(i);
  }
}

std::vector<std::int32_t> top_level_ops(const ExecutionGraph& graph) {
  std::vector<std::int32_t> ops;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!node.is_label && !has_op_ancestor(graph, node))
      ops.push_back(static_cast<std::int32_t>(i));
  }
  return ops;
}

std::vector<GraphIteration> iterations(const ExecutionGraph& graph) {
  const auto count = static_cast<std::int32_t>(graph.nodes.size());
  std::vector<GraphIteration> found;
  for (std::int32_t i = 0; i < count; ++i) {
    const Node& node = graph.node(i);
    if (!node.is_label || !is_profiler_step(graph.name(node))) continue;
    if (has_op_ancestor(graph, node)) continue;  // no step that a profiler began
    if (!found.empty()) found.back().end = i;
    found.push_back({std::string(graph.name(node)), i, count});
  }
  const auto has_no_op = [&](const GraphIteration& iteration) {
    return std::none_of(
        graph.nodes.begin() + iteration.begin, graph.nodes.begin() + iteration.end,
        [&](const Node& node) { return !node.is_label && !has_op_ancestor(graph, node); });
  };
  std::erase_if(found, has_no_op);
  if (found.empty() && !top_level_ops(graph).empty()) found.push_back({"iteration", 0, count});
  return found;
}

std::vector<std::int32_t> forward_partners(const ExecutionGraph& graph) {
  // Per sequence number the last forward node seen so far: autograd's numbers never restart, but
  // one file holds several iterations, so partners are looked up in id order.
  std::unordered_map<std::int64_t, std::int32_t> latest;
  std::vector<std::int32_t> partners(graph.nodes.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.seq_id < 0) continue;
    if (node.scope == Scope::kBackward) {
      if (auto at = latest.find(node.seq_id); at != latest.end()) partners[i] = at->second;
    } else if (node.scope == Scope::kFunction) {
      latest[node.seq_id] = static_cast<std::int32_t>(i);
    }
  }
  return partners;
}

std::vector<DataEdge> data_edges(const ExecutionGraph& graph, DataEdgeKey key) {
  std::unordered_map<std::int64_t, std::int32_t> last_writer;
  std::vector<DataEdge> edges;
  std::unordered_set<std::int32_t> sources;
  const auto id_of = [key](const Tensor& tensor) {
    return key == DataEdgeKey::kTensor ? tensor.id : tensor.storage_id;
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.children_count > 0) continue;
    sources.clear();
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      if (tensor.storage_id == 0) return;
      const auto writer = last_writer.find(id_of(tensor));
      if (writer != last_writer.end() && sources.insert(writer->second).second) {
        edges.push_back({writer->second, static_cast<std::int32_t>(i)});
      }
    });
    for_each_tensor(graph, graph.outputs(node), [&](const Tensor& tensor) {
      if (tensor.storage_id != 0) last_writer[id_of(tensor)] = static_cast<std::int32_t>(i);
    });
  }
  return edges;
}

}  // namespace perfmodel
