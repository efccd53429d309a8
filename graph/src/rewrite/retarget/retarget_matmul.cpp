#include "builders/emit/matmul.hpp"
#include "ops/catalogue.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// A generic BLAS asks whether matrices are conjugated; a batched product walks its matrices.
void product(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  rewrite.leave_out_children(node);
}

// addmm(bias, a, b, beta, alpha): cuBLASLt adds a bias vector itself where it can; rocBLAS has no
// such epilogue, so that the bias is spread over the result first.
void product_with_bias(Retargeter& rewrite, std::int32_t node) {
  const Tensor* bias = rewrite.input_entry(node, 0);
  const bool plain =
      bias && bias->rank == 1 && rewrite.real(node, 3) == 1 && rewrite.real(node, 4) == 1;
  if (!plain || rewrite.amd()) {
    rewrite.copy(node);
    rewrite.leave_out_children(node);
    const std::int32_t expand = rewrite.child(node, "aten::expand");
    if (expand >= 0) rewrite.bring_back(expand);
    return;
  }
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  const Retargeter::Start start = rewrite.start();
  addmm(rewrite.graph(), rewrite.input_tensor(node, 0), rewrite.input_tensor(node, 1, 2),
        rewrite.input_tensor(node, 2, 2), rewrite.source().node(node).seq_id);
  rewrite.adopt_outputs(start, node);
}

// The addend is copied into the result on both devices.
void batched_product_with_addend(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  for (std::int32_t child : rewrite.children(node)) {
    const std::string_view name = rewrite.name(child);
    if (name != "aten::expand" && !is_copy(name)) rewrite.leave_out(child);
  }
}

}  // namespace

std::span<const NamedRetargetRule> matmul_retarget_rules() {
  static constexpr NamedRetargetRule kRules[] = {
      {"product", product},
      {"product_with_bias", product_with_bias},
      {"batched_product_with_addend", batched_product_with_addend},
  };
  return kRules;
}

}  // namespace perfmodel
