#include <algorithm>
#include <array>
#include <string_view>

#include "attention_sites.hpp"
#include "base/contains.hpp"

namespace perfmodel {
namespace {

// Ops that make a triangle of positions, or compare positions.
constexpr std::array<std::string_view, 9> kTriangles = {
    "aten::tril", "aten::triu", "aten::tril_", "aten::triu_",       "aten::lt",
    "aten::le",   "aten::gt",   "aten::ge",    "aten::tril_indices"};
constexpr std::size_t kMostMaskOps = 64;  // in one mask

struct MaskOrigins {
  bool triangle = false;
  bool square_from_outside = false;  ///< one for all samples: a buffer of the model
};

bool is_square_mask(std::span<const std::int64_t> shape) {
  const std::size_t rank = shape.size();
  if (rank < 2 || shape[rank - 1] != shape[rank - 2] || shape[rank - 1] < 2) return false;
  return std::ranges::all_of(shape.first(rank - 2), [](std::int64_t size) { return size == 1; });
}

MaskOrigins origins_of(const StepView& step, const Version& mask) {
  const ExecutionGraph& graph = step.graph();
  MaskOrigins found;
  std::vector<const Version*> open = {&mask}, seen;
  while (!open.empty() && seen.size() < kMostMaskOps) {
    const Version* next = open.back();
    open.pop_back();
    if (contains(seen, next)) continue;
    seen.push_back(next);
    if (next->op < 0) {
      found.square_from_outside |= is_square_mask(graph.shape(graph.tensors[next->tensor]));
      continue;
    }
    found.triangle |= contains(kTriangles, graph.name(next->op));
    for (const Version* input : step.forward().inputs(next->op)) open.push_back(input);
  }
  return found;
}

}  // namespace

MaskKind mask_kind(const StepView& step, const AttentionMask& mask) {
  const auto shape = step.graph().shape(step.graph().tensors[mask.tensor->tensor]);
  const std::size_t rank = shape.size();
  if (rank < 2) return MaskKind::kPadding;
  const bool per_head =
      rank >= 4 ? shape[rank - 3] > 1 : rank == 3 && mask.form == AttentionMask::Form::kAdds;
  if (per_head) return MaskKind::kBias;
  if (shape[rank - 2] == 1) return MaskKind::kPadding;
  if (shape[rank - 2] != shape[rank - 1]) return MaskKind::kBias;
  const MaskOrigins origins = origins_of(step, *mask.tensor);
  return origins.triangle || origins.square_from_outside ? MaskKind::kCausal : MaskKind::kBias;
}

}  // namespace perfmodel
