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
    {"aten::prod",
     kReduction,
     {.autocast = kFp32Type, .autocast_cpu = kFp32, .keeps_inputs = {0}, .keeps_results = {0}}},
    {"aten::max", kReduction, {.calls = "aten::maximum", .keeps_results = {1}}},
    {"aten::min", kReduction, {.calls = "aten::minimum", .keeps_results = {1}}},
    {"aten::amax", kReduction, {.keeps_inputs = {0}, .keeps_results = {0}}},
    {"aten::amin", kReduction, {.keeps_inputs = {0}, .keeps_results = {0}}},
    {"aten::aminmax", kReduction},
    {"aten::_aminmax", kReduction},
    {"aten::argmax", kReduction},
    {"aten::argmin", kReduction},
    {"aten::norm",
     kReduction,
     {.size = "reduce_norm",
      .calls = "aten::linalg_vector_norm",
      .keeps_inputs = {0},
      .keeps_results = {0}}},
    {"aten::linalg_vector_norm",
     kReduction,
     {.size = "reduce_norm", .autocast = kFp32Type, .keeps_inputs = {0}, .keeps_results = {0}}},
    {"aten::var", kReduction, {.keeps_inputs = {0}}},
    {"aten::std", kReduction, {.calls = "aten::var", .keeps_inputs = {0}, .keeps_results = {0}}},
    {"aten::var_mean", kReduction, {.keeps_inputs = {0}}},
    {"aten::std_mean", kReduction, {.keeps_inputs = {0}}},
    {"aten::all", kReduction},
    {"aten::any", kReduction},
    {"aten::count_nonzero", kReduction},
    {"aten::logsumexp", kReduction, {.autocast = kFp32, .keeps_inputs = {0}, .keeps_results = {0}}},
    {"aten::dist", kReduction, {.size = "scalar", .autocast = kFp32}},
    {"aten::equal", kReduction, {.size = "none"}},
    {"aten::trace", kReduction, {.size = "scalar", .autocast_cpu = kFp32, .keeps_inputs = {0}}},
    {"aten::median", kReduction, {.keeps_results = {1}}},
    {"aten::mode", kReduction, {.size = "none", .keeps_results = {1}}},
    {"aten::kthvalue", kReduction, {.size = "none", .keeps_results = {1}}},
    {"aten::bincount", kReduction, {.size = "none"}},
    {"aten::histc", kReduction, {.size = "none"}},
    {"aten::cumsum",
     kReduction,
     {.in_place = true, .price = "reduction.scan", .size = "same_shape", .autocast = kFp32Type}},
    {"aten::cumprod",
     kReduction,
     {.in_place = true,
      .price = "reduction.scan",
      .size = "same_shape",
      .autocast = kFp32Type,
      .keeps_inputs = {0},
      .keeps_results = {0}}},
    {"aten::cummax",
     kReduction,
     {.price = "reduction.scan", .size = "same_shape", .keeps_results = {1}}},
    {"aten::cummin",
     kReduction,
     {.price = "reduction.scan", .size = "same_shape", .keeps_results = {1}}},
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
