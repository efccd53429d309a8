#pragma once

#include <span>
#include <string_view>

#include "rule_support.hpp"

/// The rules of each family of ops, by the names under which rows of the op catalogue
/// (graph/src/ops) ask for them.
namespace perfmodel::ops {

struct NamedLower {
  std::string_view name;
  Lower lower;
};

/// FLOP per element of the pointwise ops that a name lists after "_fused_", as Inductor names
/// kernels ("triton_poi_fused_add_cos_0"); an estimate where it lists none.
double flop_of_fused_ops(std::string_view name);

std::span<const NamedLower> attention_rules();
std::span<const NamedLower> collective_rules();
std::span<const NamedLower> concat_rules();
std::span<const NamedLower> convolution_rules();
std::span<const NamedLower> copy_rules();
std::span<const NamedLower> ctc_rules();
std::span<const NamedLower> data_sized_rules();
std::span<const NamedLower> detection_rules();
std::span<const NamedLower> elementwise_rules();
std::span<const NamedLower> embedding_rules();
std::span<const NamedLower> fbgemm_rules();
std::span<const NamedLower> foreach_rules();
std::span<const NamedLower> gemm_rules();
std::span<const NamedLower> hashed_weight_rules();
std::span<const NamedLower> index_rules();
std::span<const NamedLower> loss_rules();
std::span<const NamedLower> norm_rules();
std::span<const NamedLower> pooling_rules();
std::span<const NamedLower> quantize_rules();
std::span<const NamedLower> recurrent_rules();
std::span<const NamedLower> reduction_rules();
std::span<const NamedLower> softmax_rules();
std::span<const NamedLower> sort_rules();
std::span<const NamedLower> triton_rules();

}  // namespace perfmodel::ops
