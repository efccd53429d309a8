#include "catalogue.hpp"

namespace perfmodel {
namespace {

using enum OpKind;
using enum AutocastPolicy;

constexpr Op kOps[] = {
    {"aten::cudnn_batch_norm",
     kNorm,
     {.price = "norm.fused_batch_norm", .size = "like_first", .weights = {1, 2, 3, 4}}},
    {"aten::miopen_batch_norm", kNorm, {.price = "norm.fused_batch_norm", .size = "like_first"}},
    {"aten::cudnn_batch_norm_backward",
     kNorm,
     {.price = "norm.fused_batch_norm_backward", .size = "like_first"}},
    {"aten::miopen_batch_norm_backward",
     kNorm,
     {.price = "norm.fused_batch_norm_backward", .size = "like_first"}},
    {"aten::native_batch_norm",
     kNorm,
     {.price = "norm.native_batch_norm", .size = "like_first", .weights = {1, 2, 3, 4}}},
    {"aten::_native_batch_norm_legit", kNorm, {.price = "norm.native_batch_norm"}},
    {"aten::_native_batch_norm_legit_no_training", kNorm, {.price = "norm.native_batch_norm"}},
    {"aten::_batch_norm_with_update", kNorm, {.price = "norm.native_batch_norm"}},
    {"aten::_batch_norm_no_update", kNorm, {.price = "norm.native_batch_norm"}},
    {"aten::native_batch_norm_backward",
     kNorm,
     {.price = "norm.native_batch_norm_backward",
      .size = "like_second",
      .retarget = "batch_norm_backward"}},
    {"aten::batch_norm_backward", kNorm, {.price = "norm.native_batch_norm_backward"}},
    {"aten::native_layer_norm",
     kNorm,
     {.price = "norm.layer_norm", .size = "normalised", .autocast = kFp32, .weights = {2, 3}}},
    {"aten::native_group_norm", kNorm, {.price = "norm.layer_norm", .size = "group_norm"}},
    {"aten::_fused_rms_norm", kNorm, {.price = "norm.layer_norm", .size = "normalised"}},
    {"aten::native_layer_norm_backward",
     kNorm,
     {.price = "norm.layer_norm_backward",
      .size = "layer_norm_backward",
      .retarget = "layer_norm_backward"}},
    {"aten::native_group_norm_backward", kNorm, {.price = "norm.layer_norm_backward"}},
    {"aten::_fused_rms_norm_backward", kNorm, {.price = "norm.layer_norm_backward"}},
    {"aten::_softmax", kSoftmax, {.size = "same_shape"}},
    {"aten::_softmax_backward_data", kSoftmax, {.size = "same_shape"}},
    {"aten::_log_softmax", kSoftmax, {.size = "same_shape"}},
    {"aten::_log_softmax_backward_data", kSoftmax, {.size = "same_shape"}},
    {"aten::_masked_softmax", kSoftmax, {.size = "same_shape"}},
    {"aten::_masked_softmax_backward", kSoftmax},
    {"aten::_safe_softmax", kSoftmax, {.size = "same_shape"}},
    {"aten::batch_norm", kComposite, {.size = "like_first", .weights = {1, 2, 3, 4}}},
    {"aten::_batch_norm_impl_index", kComposite, {.size = "like_first", .retarget = "batch_norm"}},
    {"aten::layer_norm", kComposite, {.size = "normalised", .autocast = kFp32, .weights = {2, 3}}},
    {"aten::rms_norm", kComposite, {.size = "normalised", .weights = {2}}},
    {"aten::log_softmax", kComposite, {.size = "same_shape", .autocast = kFp32Type}},
    {"aten::softmax", kComposite, {.size = "same_shape", .autocast = kFp32Type}},
    {"aten::group_norm", kComposite, {.autocast = kFp32, .weights = {2, 3}}},
    {"aten::frobenius_norm", kComposite, {.autocast = kFp32}},
    {"aten::nuclear_norm", kComposite, {.autocast = kFp32}},
    {"aten::renorm", kComposite, {.autocast = kFp32}},
    {"aten::linalg_matrix_norm", kComposite, {.autocast = kFp32Type}},
    {"aten::instance_norm", kComposite, {.weights = {1, 2, 3, 4}}},
};

}  // namespace

std::span<const Op> norm_ops() { return kOps; }

}  // namespace perfmodel
