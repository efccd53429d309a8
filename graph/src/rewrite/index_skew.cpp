#include "perfmodel/graph/rewrites/resize.hpp"

#include <fmt/format.h>

#include <string_view>

namespace perfmodel {
namespace {

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
  for (Node& node : made.nodes) {
    if (node.is_label || node.is_structural || !reads_a_table(made.name(node))) continue;
    node.index_zipf_exponent = exponent;
    any = true;
  }
  if (!any) return fail(ErrorCode::kImpossible, "expected lookups in embedding tables, found none");
  return made;
}

}  // namespace perfmodel
