#include "catalogue.hpp"

namespace perfmodel {
namespace {

using enum OpKind;
using enum AutocastPolicy;

constexpr Op kOps[] = {
    {"aten::view", kView, {.size = "reshape"}},
    {"aten::view_as", kView, {.size = "reshape"}},
    {"aten::as_strided", kView, {.in_place = true, .size = "as_strided"}},
    {"aten::t", kView, {.in_place = true, .size = "transpose", .constants = {0}}},
    {"aten::transpose", kView, {.in_place = true, .size = "transpose"}},
    {"aten::swapaxes", kView, {.size = "transpose"}},
    {"aten::swapdims", kView, {.size = "transpose"}},
    {"aten::numpy_T", kView, {.size = "transpose"}},
    {"aten::adjoint", kView},
    {"aten::mT", kView, {.size = "transpose"}},
    {"aten::mH", kView},
    {"aten::expand", kView, {.size = "expand"}},
    {"aten::expand_as", kView, {.size = "expand"}},
    {"aten::broadcast_to", kView, {.size = "expand"}},
    {"aten::broadcast_tensors", kView},
    {"aten::slice", kView, {.size = "slice"}},
    {"aten::select", kView, {.size = "select"}},
    {"aten::narrow", kView, {.size = "narrow"}},
    {"aten::unsqueeze", kView, {.in_place = true, .size = "unsqueeze"}},
    {"aten::squeeze", kView, {.in_place = true, .size = "squeeze"}},
    {"aten::_reshape_alias", kView, {.size = "reshape"}},
    {"aten::_unsafe_view", kView, {.size = "reshape"}},
    {"aten::permute", kView, {.size = "permute"}},
    {"aten::movedim", kView},
    {"aten::moveaxis", kView},
    {"aten::detach", kView, {.in_place = true, .size = "same_layout"}},
    {"detach", kView, {.in_place = true, .size = "same_layout"}},
    {"aten::alias", kView, {.size = "same_layout"}},
    {"aten::unfold", kView},
    {"aten::diagonal", kView},
    {"aten::unbind", kView, {.size = "unbind"}},
    {"aten::split", kView, {.size = "split"}},
    {"aten::split_with_sizes", kView, {.size = "split"}},
    {"aten::chunk", kView, {.size = "split"}},
    {"aten::tensor_split", kView},
    {"aten::unsafe_split", kView, {.size = "split"}},
    {"aten::unsafe_split_with_sizes", kView, {.size = "split"}},
    {"aten::unsafe_chunk", kView, {.size = "split"}},
    {"aten::unflatten", kView, {.size = "reshape"}},
    {"aten::view_as_real", kView, {.size = "same_layout"}},
    {"aten::view_as_complex", kView},
    {"aten::real", kView, {.size = "same_layout"}},
    {"aten::_conj", kView, {.size = "same_layout"}},
    {"aten::resolve_conj", kView, {.size = "same_layout", .retarget = "disappear"}},
    {"aten::resolve_neg", kView, {.size = "same_layout", .retarget = "disappear"}},
    {"aten::_neg_view", kView, {.size = "same_layout"}},
    {"aten::lift_fresh", kView, {.size = "same_layout"}},
    {"aten::lift", kView, {.size = "same_layout"}},
    {"aten::_fw_primal", kView, {.size = "same_layout"}},
    {"aten::_values", kView, {.size = "sparse_part"}},
    {"aten::_indices", kView, {.size = "sparse_part"}},
    {"aten::values", kView, {.size = "sparse_part"}},
    {"aten::indices", kView, {.size = "sparse_part"}},
    {"aten::unflatten_dense_tensors", kView},
    {"aten::crow_indices", kView},
    {"aten::col_indices", kView},
    {"aten::_nested_view_from_buffer", kView},
    {"aten::reshape_as", kComposite, {.size = "reshape"}},
    {"aten::slice_backward", kComposite, {.size = "create_new"}},
    {"aten::select_backward", kComposite, {.size = "create_new"}},
    {"aten::flatten_dense_tensors", kComposite},
};

}  // namespace

std::span<const Op> view_ops() { return kOps; }

}  // namespace perfmodel
