#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// A tensor that is added to the scores of an attention or hides some of them.
struct AttentionMask {
  const Version* tensor = nullptr;
  enum class Form { kAdds, kKeeps, kHides } form = Form::kAdds;  ///< numbers, or bools
};

/// A scaled dot product attention in the forward pass: in ops of its own between the product of
/// queries and keys and the product with the values, or one aten::scaled_dot_product_attention.
struct AttentionSite {
  std::vector<std::int32_t> ops = {};  ///< sorted; other ops read only `out` of their results
  std::vector<std::int32_t> k_ops = {}, v_ops = {};  ///< the ones that k and v alone go through
  const Version *q = nullptr, *k = nullptr, *v = nullptr;  ///< [B, H, S, D] or [N, S, D]
  const Version* out = nullptr;
  bool k_is_turned = false;           ///< [..., D, S]
  std::int64_t batch = 1, heads = 0;  ///< batch of tensors that are [N, S, D]; 0: not known
  std::vector<AttentionMask> masks = {};
  double dropout = 0;
  std::optional<double> scale = {};  ///< scores are multiplied by it; unset: 1 / sqrt(D), or a
                                     ///< tensor holds it
  bool causal = false;               ///< says so itself
  std::optional<AttentionBackend> kernel = {};  ///< called by the op
};

struct AttentionSites {
  std::vector<AttentionSite> sites = {};
  std::string broken = {};  ///< why the first softmax between two products is none; empty: none is
};

AttentionSites find_attention(const StepView& step);

/// The attention that is one call of aten::scaled_dot_product_attention; none: it has other
/// arguments.
std::optional<AttentionSite> attention_call(const StepView& step, std::int32_t op);
/// Whether q, k and v are [B, H, S, D] or [N, S, D] that fit each other.
bool has_operands(const ExecutionGraph& graph, const AttentionSite& site);

/// Which positions a mask hides.
enum class MaskKind {
  kCausal,   ///< later positions, maybe padding too
  kPadding,  ///< keys, for all queries alike
  kBias,     ///< anything else: a number per head and pair of positions, or unknown
};
MaskKind mask_kind(const StepView& step, const AttentionMask& mask);

}  // namespace perfmodel
