#include "catalogue.hpp"

namespace perfmodel {
namespace {

using enum OpKind;
using enum AutocastPolicy;

constexpr Op kOps[] = {
    {"aten::mm",
     kProduct,
     {.size = "mm", .retarget = "product", .autocast = kLower, .autocast_cpu = kLower}},
    {"aten::bmm",
     kProduct,
     {.size = "bmm", .retarget = "product", .autocast = kLower, .autocast_cpu = kLower}},
    {"aten::addmm",
     kProduct,
     {.size = "addmm",
      .retarget = "product_with_bias",
      .autocast = kLower,
      .autocast_cpu = kLower,
      .weights = {0}}},
    {"aten::addmm_", kProduct, {.retarget = "product"}},
    {"aten::baddbmm",
     kProduct,
     {.in_place = true,
      .size = "baddbmm",
      .retarget = "batched_product_with_addend",
      .autocast = kLower,
      .autocast_cpu = kLower}},
    {"aten::addbmm",
     kProduct,
     {.in_place = true,
      .retarget = "batched_product_with_addend",
      .autocast = kLower,
      .autocast_cpu = kLower}},
    {"aten::_addmm_activation", kProduct},
    {"aten::_int_mm", kProduct},
    {"aten::_scaled_mm", kProduct},
    {"aten::linear",
     kProduct,
     {.price = "gemm.linear",
      .size = "matmul",
      .autocast = kLower,
      .autocast_cpu = kLower,
      .calls = "aten::addmm aten::mm aten::matmul",
      .weights = {1, 2},
      .data = {0}}},
    {"aten::mv",
     kProduct,
     {.price = "gemm.matrix_vector", .size = "mv", .retarget = "product", .autocast = kLower}},
    {"aten::addmv",
     kProduct,
     {.in_place = true, .price = "gemm.matrix_vector", .retarget = "product", .autocast = kLower}},
    {"aten::dot",
     kProduct,
     {.price = "gemm.matrix_vector",
      .size = "scalar",
      .retarget = "product",
      .autocast = kPromote}},
    {"aten::vdot",
     kProduct,
     {.price = "gemm.matrix_vector", .retarget = "product", .autocast = kPromote}},
    {"aten::ger", kProduct, {.price = "gemm.matrix_vector", .retarget = "product"}},
    {"aten::addr", kProduct, {.in_place = true, .price = "gemm.matrix_vector", .autocast = kLower}},
    {"aten::matmul", kComposite, {.size = "matmul", .autocast = kLower, .autocast_cpu = kLower}},
    {"aten::einsum", kComposite, {.autocast = kLower}},
    {"aten::linalg_vecdot", kComposite, {.autocast = kLower}},
    {"aten::chain_matmul", kComposite, {.autocast = kLower}},
    {"aten::linalg_multi_dot", kComposite, {.autocast = kLower}},
    {"aten::bilinear", kComposite, {.autocast = kPromote}},
    {"aten::cross", kComposite, {.autocast = kPromote}},
    {"aten::tensordot", kComposite, {.autocast = kPromote}},
};

}  // namespace

std::span<const Op> product_ops() { return kOps; }

}  // namespace perfmodel
