#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// A generic BLAS asks whether matrices are conjugated; a batched product walks its matrices.
void product(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  rewrite.leave_out_children(node);
}

// cuBLASLt adds a bias vector itself, except for thin matrices, where it is spread and copied into
// the result by the op itself; rocBLAS has no such epilogue.
void product_with_bias(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  rewrite.leave_out_children(node);
  const Tensor* bias = rewrite.input_entry(node, 0);
  const Tensor* right = rewrite.input_entry(node, 2);
  const bool vector = bias && right && bias->rank == 1 && right->rank == 2;
  const auto sizes = right ? rewrite.source().shape(*right) : std::span<const std::int64_t>();
  const bool epilogue = !rewrite.amd() && vector && sizes[0] > 1 && sizes[1] > 1;
  const std::int32_t expand = rewrite.child(node, "aten::expand");
  if (!epilogue && expand >= 0) rewrite.bring_back(expand);
}

// The addend is copied into the result on both devices.
void batched_product_with_addend(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  for (std::int32_t child : rewrite.children(node)) {
    const std::string_view name = rewrite.name(child);
    if (name != "aten::expand" && name != "aten::copy_") rewrite.leave_out(child);
  }
}

}  // namespace

void add_matmul_rules(RetargetRules& rules) {
  for (std::string_view op : {"aten::mm", "aten::bmm", "aten::dot", "aten::vdot", "aten::mv",
                              "aten::ger", "aten::addmv", "aten::addmv_"}) {
    rules[op] = product;
  }
  rules["aten::addmm"] = product_with_bias;
  rules["aten::addmm_"] = product;
  rules["aten::baddbmm"] = batched_product_with_addend;
  rules["aten::addbmm"] = batched_product_with_addend;
}

}  // namespace perfmodel
