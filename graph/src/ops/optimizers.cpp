#include "catalogue.hpp"

namespace perfmodel {

std::span<const Op> optimizer_ops() {
  using enum OpKind;
  static constexpr Op kOps[] = {
      {"aten::_foreach_zero_", kForeach, {.size = "foreach"}},
      {"aten::_foreach_copy_", kForeach, {.size = "foreach", .retarget = "none"}},
      {"aten::_foreach_norm", kForeach, {.retarget = "none"}},
      {"aten::_foreach_add", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_sub", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_mul", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_div", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_neg", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_abs", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_exp", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_log", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_sqrt", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_rsqrt", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_reciprocal", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_pow", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_sign", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_addcmul", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_addcdiv", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_lerp", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_maximum", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_minimum", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_clamp_min", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_clamp_max", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_sigmoid", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_tanh", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_foreach_round", kForeach, {.in_place = true, .size = "foreach"}},
      {"aten::_fused_adam",
       kOptimizer,
       {.in_place = true, .price = "foreach.fused_adam", .size = "foreach"}},
      {"aten::_fused_adamw",
       kOptimizer,
       {.in_place = true, .price = "foreach.fused_adam", .size = "foreach"}},
      {"aten::_fused_sgd",
       kOptimizer,
       {.in_place = true, .price = "foreach.fused_sgd", .size = "foreach"}},
      {"aten::_fused_adagrad",
       kOptimizer,
       {.in_place = true, .price = "foreach.fused_adagrad", .size = "foreach"}},
      {"bitsandbytes::optimizer_update_8bit_blockwise",
       kOptimizer,
       {.price = "foreach.adam_of_one"}},
      {"bitsandbytes::optimizer_update_32bit", kOptimizer, {.price = "foreach.adam_of_one"}},
      {"aten::_amp_foreach_non_finite_check_and_unscale_",
       kOptimizer,
       {.price = "foreach.unscale"}},
  };
  return kOps;
}

}  // namespace perfmodel
