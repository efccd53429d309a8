#include "catalogue.hpp"

namespace perfmodel {

std::span<const Op> attention_ops() {
  using enum OpKind;
  using enum AutocastPolicy;
  static constexpr Op kOps[] = {
      {"aten::_scaled_dot_product_flash_attention",
       kAttention,
       {.size = "attention",
        .autocast = kLower,
        .calls = "aten::_flash_attention_forward",
        .keeps_inputs = {0, 1, 2},
        .keeps_results = {0, 1, 2, 3, 6, 7}}},
      {"aten::_scaled_dot_product_flash_attention_backward",
       kAttention,
       {.size = "attention_backward", .calls = "aten::_flash_attention_backward"}},
      {"aten::_scaled_dot_product_efficient_attention",
       kAttention,
       {.size = "attention",
        .calls = "aten::_efficient_attention_forward",
        .keeps_inputs = {0, 1, 2, 3},
        .keeps_results = {0, 1, 2, 3}}},
      {"aten::_scaled_dot_product_efficient_attention_backward",
       kAttention,
       {.size = "attention_backward", .calls = "aten::_efficient_attention_backward"}},
      {"aten::_scaled_dot_product_cudnn_attention",
       kAttention,
       {.size = "attention",
        .autocast = kLower,
        .calls = "aten::_cudnn_attention_forward",
        .keeps_inputs = {0, 1, 2},
        .keeps_results = {0, 1, 2, 3, 6, 7}}},
      {"aten::_scaled_dot_product_cudnn_attention_backward",
       kAttention,
       {.size = "attention_backward", .calls = "aten::_cudnn_attention_backward"}},
      {"aten::_cudnn_attention_forward", kAttention, {.size = "attention"}},
      {"aten::_cudnn_attention_backward", kAttention, {.size = "attention_backward"}},
      {"aten::_flash_attention_forward", kAttention, {.size = "attention_kernel"}},
      {"aten::_flash_attention_backward", kAttention, {.size = "attention_kernel_backward"}},
      {"aten::_efficient_attention_forward", kAttention, {.size = "attention_kernel"}},
      {"aten::_efficient_attention_backward", kAttention, {.size = "attention_kernel_backward"}},
      {"aten::_native_multi_head_attention", kComposite, {.weights = {5, 6, 7, 8}}},
      {"aten::_transformer_encoder_layer_fwd",
       kComposite,
       {.weights = {3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16, 17}}},
      {"aten::scaled_dot_product_attention", kComposite, {.size = "attention", .autocast = kLower}},
      {"aten::_scaled_dot_product_attention_math", kComposite},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", kComposite, {.retarget = "attention"}},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       kComposite,
       {.retarget = "attention_backward"}},
  };
  return kOps;
}

}  // namespace perfmodel
