#include "catalogue.hpp"

namespace perfmodel {
namespace {

using enum OpKind;
using enum AutocastPolicy;

constexpr Op kOps[] = {
    {"aten::_embedding_bag",
     kEmbedding,
     {.price = "embedding.bag",
      .size = "embedding_bag",
      .retarget = "embedding_bag",
      .weights = {0},
      .keeps_inputs = {1, 2, 6},
      .keeps_results = {1, 2, 3}}},
    {"aten::embedding_bag",
     kEmbedding,
     {.price = "embedding.bag",
      .size = "embedding_bag",
      .retarget = "embedding_bag",
      .calls = "aten::_embedding_bag aten::_embedding_bag_forward_only",
      .weights = {0},
      .data = {1, 2, 6},
      .keeps_inputs = {1, 2, 6},
      .keeps_results = {1, 2, 3}}},
    {"aten::_embedding_bag_forward_only",
     kEmbedding,
     {.price = "embedding.bag", .size = "embedding_bag"}},
    {"aten::embedding",
     kEmbedding,
     {.price = "embedding.lookup",
      .size = "embedding",
      .calls = "aten::index_select",
      .weights = {0},
      .data = {1},
      .keeps_inputs = {1}}},
    {"aten::embedding_dense_backward",
     kEmbedding,
     {.price = "embedding.dense_backward",
      .size = "table_gradient",
      .retarget = "embedding_gradient"}},
    {"aten::_embedding_bag_dense_backward",
     kEmbedding,
     {.price = "embedding.dense_backward", .size = "table_gradient"}},
    {"aten::_embedding_bag_backward",
     kEmbedding,
     {.price = "embedding.sparse_backward",
      .size = "embedding_bag_backward",
      .retarget = "embedding_bag_gradient",
      .calls = "aten::_embedding_bag_dense_backward aten::_embedding_bag_sparse_backward"}},
    {"aten::_embedding_bag_sparse_backward",
     kEmbedding,
     {.price = "embedding.sparse_backward", .size = "embedding_bag_backward"}},
    {"aten::embedding_sparse_backward",
     kEmbedding,
     {.price = "embedding.sparse_backward", .size = "embedding_bag_backward"}},
    {"aten::embedding_backward",
     kEmbedding,
     {.price = "embedding.sparse_backward", .size = "table_gradient"}},
    {"aten::embedding_renorm_", kEmbedding, {.price = "embedding.renorm"}},
};

}  // namespace

std::span<const Op> embedding_ops() { return kOps; }

}  // namespace perfmodel
