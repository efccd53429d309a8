#include "rewritten_graphs.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "../graph/small_models.hpp"
#include "fuzz.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel::fuzz {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostChanges = 64;
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;  // strides of more would overflow

std::optional<std::int64_t> integer(const Json& document, const char* key) {
  const auto at = document.find(key);
  if (at == document.end() || !at->is_number()) return {};
  return at->is_number_integer() ? at->get<std::int64_t>() : 0;
}

void change_tensors(ExecutionGraph& graph, const Node& node, const Json& change) {
  const auto note = [&](const Tensor& of_node) {
    Tensor& tensor = graph.tensors[static_cast<std::size_t>(&of_node - graph.tensors.data())];
    if (const auto rank = integer(change, "rank")) {
      tensor.rank = static_cast<std::uint16_t>(std::clamp<std::int64_t>(*rank, 0, tensor.rank));
    }
    if (const auto dtype = integer(change, "dtype")) {
      tensor.dtype = static_cast<DType>(std::clamp<std::int64_t>(*dtype, 0, 14));
    }
    if (const auto device = integer(change, "device")) {
      tensor.device.kind = static_cast<Device::Kind>(std::clamp<std::int64_t>(*device, 0, 3));
    }
    if (const auto id = integer(change, "tensor")) tensor.id = *id;
    if (const auto storage = integer(change, "storage")) tensor.storage_id = *storage;
    const auto size = integer(change, "size");
    if (!size || tensor.rank == 0) return;
    graph.shape_pool[tensor.shape_begin] = std::clamp(*size, -kMostElements, kMostElements);
    tensor.numel = 1;
    for (std::int64_t n : graph.shape(tensor)) {
      if (n < 0 || (n > 0 && tensor.numel > kMostElements / n)) return;
      tensor.numel *= n;
    }
  };
  for_each_tensor(graph, graph.inputs(node), note);
  for_each_tensor(graph, graph.outputs(node), note);
}

void change_node(ExecutionGraph& graph, const Json& change) {
  const auto node_at = [&](const char* key) -> Node* {
    const auto index = integer(change, key);
    if (!index) return nullptr;
    const auto count = static_cast<std::uint64_t>(graph.nodes.size());
    return &graph.nodes[static_cast<std::uint64_t>(*index) % count];
  };
  Node* node = node_at("node");
  if (!node) return;
  if (const Node* parent = node_at("parent")) node->parent_id = parent->id;
  if (const auto id = integer(change, "parent_id")) node->parent_id = *id;
  if (Node* other = node_at("swap")) std::swap(node->id, other->id);
  if (const Node* other = node_at("name")) node->name = other->name;
  if (const Node* other = node_at("arguments")) {
    node->inputs_begin = other->inputs_begin;
    node->inputs_count = other->inputs_count;
  }
  if (const auto thread = integer(change, "thread")) {
    node->thread = static_cast<std::int32_t>(*thread);
  }
  if (const auto sequence = integer(change, "sequence")) node->seq_id = *sequence;
  if (const auto scope = integer(change, "scope")) node->scope = static_cast<Scope>(*scope & 0xFF);
  if (const auto partner = integer(change, "fw_parent")) node->fw_parent = *partner;
  if (const auto count = integer(change, "inputs")) {
    node->inputs_count =
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(*count, 0, node->inputs_count));
  }
  if (const auto count = integer(change, "outputs")) {
    node->outputs_count =
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(*count, 0, node->outputs_count));
  }
  change_tensors(graph, *node, change);
}

}  // namespace

std::optional<ExecutionGraph> graph_of(const Json& document, std::string_view text) {
  static const std::map<std::string, ExecutionGraph> bases = test_support::small_models();
  std::string file(text);
  if (const auto graph = document.find("graph"); graph != document.end()) {
    const auto base = graph->is_string() ? bases.find(graph->get<std::string>()) : bases.end();
    if (base == bases.end()) {
      file = graph->dump(-1, ' ', false, Json::error_handler_t::replace);
    } else {
      ExecutionGraph changed = base->second;
      const Json changes = document.value("changes", Json::array());
      for (std::size_t i = 0; i < std::min(changes.size(), kMostChanges); ++i) {
        if (changes.is_array()) change_node(changed, changes[i]);
      }
      index_graph(changed);
      file = execution_graph_json(changed);
    }
  }
  auto read = parse_execution_graph(file, "input");
  if (!read) return {};  // execution_graph looks at those
  return std::move(*read);
}

bool is_program(const Json& document) {
  constexpr std::string_view kSizes[] = {"node", "size", "rank", "dtype", "device"};
  const auto graph = document.find("graph");
  if (graph == document.end() || !graph->is_string()) return false;
  const Json changes = document.value("changes", Json::array());
  return std::ranges::all_of(changes, [&](const Json& change) {
    return change.is_object() && std::ranges::all_of(change.items(), [&](const auto& entry) {
             return std::ranges::find(kSizes, entry.key()) != std::end(kSizes);
           });
  });
}

std::optional<NamedRewrite> rewrite_of(const std::string& text) {
  const std::size_t space = text.find(' ');
  const RewriteOption* option = find_rewrite_option(text.substr(0, space));
  if (!option) return {};
  auto rewrite =
      named_rewrite(*option, space == text.npos ? std::string() : text.substr(space + 1));
  if (!rewrite) {
    check_error(rewrite.error());
    return {};
  }
  return std::move(*rewrite);
}

void check_unbroken(const test_support::Violation& violation, const std::string& rewrites) {
  if (!violation) return;
  std::fprintf(stderr, "%s: %s\n", rewrites.c_str(), violation->c_str());
  PERFMODEL_CHECK(!"an invariant of rewritten graphs holds");
}

}  // namespace perfmodel::fuzz
