#pragma once

#include <optional>
#include <string_view>

#include "rule_support.hpp"

/// Reads lookups in embedding tables from their nodes.
namespace perfmodel::ops {

/// A lookup of FBGEMM in several tables at once.
struct BatchedLookup {
  EmbeddingShape shape;  ///< a mean table's
  DType dtype = DType::kFloat32;
  double lookups = 0, total_dim = 0;
  double total_rows = 0;  ///< were all tables as wide as the mean one
  std::int64_t max_dim = 0;
  bool weighted = false, pooled = true;
};

/// "fbgemm::split_embedding_codegen_lookup_sgd_function" and its kind.
bool is_batched_lookup(std::string_view name);
/// None if the arguments are not such a node's.
std::optional<BatchedLookup> read_batched_lookup(const OpView& op);

/// _embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample_weights,
/// include_last_offset, ...), and embedding_bag. Without lookups the batch may be 0.
std::optional<EmbeddingShape> read_bag(const OpView& op);
/// embedding(weight, indices): a bag per index.
std::optional<EmbeddingShape> read_lookup(const OpView& op);

}  // namespace perfmodel::ops
