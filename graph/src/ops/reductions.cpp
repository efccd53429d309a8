#include "catalogue.hpp"

namespace perfmodel {
namespace {

using enum OpKind;
using enum AutocastPolicy;

constexpr Op kOps[] = {
    {"aten::sum", kReduction, {.autocast = kFp32Type}},
    {"aten::mean", kReduction, {.calls = "aten::sum"}},
    {"aten::nansum", kReduction},
    {"aten::nanmean", kReduction},
    {"aten::prod", kReduction, {.autocast = kFp32Type, .autocast_cpu = kFp32}},
    {"aten::max", kReduction, {.calls = "aten::maximum"}},
    {"aten::min", kReduction, {.calls = "aten::minimum"}},
    {"aten::amax", kReduction},
    {"aten::amin", kReduction},
    {"aten::aminmax", kReduction},
    {"aten::_aminmax", kReduction},
    {"aten::argmax", kReduction},
    {"aten::argmin", kReduction},
    {"aten::norm", kReduction, {.size = "reduce_norm", .calls = "aten::linalg_vector_norm"}},
    {"aten::linalg_vector_norm", kReduction, {.size = "reduce_norm", .autocast = kFp32Type}},
    {"aten::var", kReduction},
    {"aten::std", kReduction, {.calls = "aten::var"}},
    {"aten::var_mean", kReduction},
    {"aten::std_mean", kReduction},
    {"aten::all", kReduction},
    {"aten::any", kReduction},
    {"aten::count_nonzero", kReduction},
    {"aten::logsumexp", kReduction, {.autocast = kFp32}},
    {"aten::dist", kReduction, {.size = "scalar", .autocast = kFp32}},
    {"aten::equal", kReduction, {.size = "none"}},
    {"aten::trace", kReduction, {.size = "scalar", .autocast_cpu = kFp32}},
    {"aten::median", kReduction},
    {"aten::mode", kReduction, {.size = "none"}},
    {"aten::kthvalue", kReduction, {.size = "none"}},
    {"aten::bincount", kReduction, {.size = "none"}},
    {"aten::histc", kReduction, {.size = "none"}},
    {"aten::cumsum",
     kReduction,
     {.in_place = true, .price = "reduction.scan", .size = "same_shape", .autocast = kFp32Type}},
    {"aten::cumprod",
     kReduction,
     {.in_place = true, .price = "reduction.scan", .size = "same_shape", .autocast = kFp32Type}},
    {"aten::cummax", kReduction, {.price = "reduction.scan", .size = "same_shape"}},
    {"aten::cummin", kReduction, {.price = "reduction.scan", .size = "same_shape"}},
    {"aten::logcumsumexp", kReduction, {.price = "reduction.scan", .size = "same_shape"}},
    {"aten::_cumsum", kReduction, {.price = "reduction.scan", .size = "same_shape"}},
    {"aten::_cummax_helper", kReduction, {.price = "reduction.scan", .size = "none"}},
    {"aten::_cummin_helper", kReduction, {.price = "reduction.scan", .size = "none"}},
    {"aten::pdist", kComposite, {.autocast = kFp32}},
    {"aten::cdist", kComposite, {.autocast = kFp32, .autocast_cpu = kFp32}},
    {"aten::value_selecting_reduction_backward", kComposite},
};

}  // namespace

std::span<const Op> reduction_ops() { return kOps; }

}  // namespace perfmodel
