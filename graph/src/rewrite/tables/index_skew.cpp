#include "perfmodel/graph/rewrites/resize.hpp"

#include <fmt/format.h>

#include <string_view>

#include "step/step_view.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

bool reads_table_first(std::string_view name) {
  return name == "aten::embedding_bag" || name == "aten::_embedding_bag" ||
         name == "aten::_embedding_bag_forward_only" || name == "aten::embedding";
}

// Matches lookups of PyTorch and FBGEMM, the ops that compute their gradients, and mere wrappers.
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
  const StepView step(graph);
  const ExecutionGraph& named = step.graph();
  const auto count = static_cast<std::int32_t>(graph.nodes.size());
  FactsOfValues<bool> is_table(step.storages());
  for (std::int32_t i = 0; i < count; ++i) {
    const Tensor* table = reads_table_first(named.name(i)) ? input_at(named, i, 0) : nullptr;
    if (table && table->storage_id != 0) is_table[*table] = true;
  }
  ExecutionGraph made = graph;
  bool any = false;
  for (std::int32_t i = 0; i < count; ++i) {
    Node& node = made.node(i);
    if (node.is_label || node.is_structural) continue;
    const bool reads = reads_a_table(made.name(node));
    // An update by a sparse gradient adds rows, by the indices that the table was looked up with.
    const Tensor* target = made.name(node) == "aten::index_add_" ? input_at(named, i, 0) : nullptr;
    if (!reads && !(target && is_table[*target])) continue;
    node.index_zipf_exponent = exponent;
    any = any || reads;
  }
  if (!any) return fail(ErrorCode::kImpossible, "expected lookups in embedding tables, found none");
  return made;
}

}  // namespace perfmodel
