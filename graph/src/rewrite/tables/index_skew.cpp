#include "perfmodel/graph/rewrites/resize.hpp"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>

namespace perfmodel {
namespace {

bool reads_table_first(std::string_view name) {
  return name == "aten::embedding_bag" || name == "aten::_embedding_bag" ||
         name == "aten::_embedding_bag_forward_only" || name == "aten::embedding";
}

// Storages of the tables: what lookups read first.
std::unordered_set<std::int64_t> table_storages(const ExecutionGraph& graph) {
  std::unordered_set<std::int64_t> storages;
  for (const Node& node : graph.nodes) {
    if (!reads_table_first(graph.name(node)) || node.inputs_count == 0) continue;
    const Argument& table = graph.inputs(node)[0];
    if (table.kind != Argument::Kind::kTensor) continue;
    const std::int64_t storage = graph.tensors[table.index].storage_id;
    if (storage != 0) storages.insert(storage);
  }
  return storages;
}

// An update by a sparse gradient adds rows to a table, by the indices that it was looked up with.
bool adds_to_table(const ExecutionGraph& graph, const Node& node,
                   const std::unordered_set<std::int64_t>& tables) {
  if (graph.name(node) != "aten::index_add_" || node.inputs_count == 0) return false;
  const Argument& target = graph.inputs(node)[0];
  return target.kind == Argument::Kind::kTensor &&
         tables.contains(graph.tensors[target.index].storage_id);
}

// Lookups of PyTorch and FBGEMM and what computes their gradients; also what merely wraps them.
bool reads_a_table(std::string_view name) {
  for (std::string_view part : {"embedding", "SplitLookupFunction", "SplitNoBagLookupFunction"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

Result<ExecutionGraph> set_index_skew(const ExecutionGraph& graph, double exponent) {
  if (!(exponent >= 0 && exponent <= kMostZipfExponent)) {
    return fail(ErrorCode::kImpossible, fmt::format("expected an exponent from 0 to {}, found {}",
                                                    kMostZipfExponent, exponent));
  }
  ExecutionGraph made = graph;
  bool any = false;
  const auto tables = table_storages(made);
  for (Node& node : made.nodes) {
    if (node.is_label || node.is_structural) continue;
    const bool reads = reads_a_table(made.name(node));
    if (!reads && !adds_to_table(made, node, tables)) continue;
    node.index_zipf_exponent = exponent;
    any = any || reads;
  }
  if (!any) return fail(ErrorCode::kImpossible, "expected lookups in embedding tables, found none");
  return made;
}

}  // namespace perfmodel
