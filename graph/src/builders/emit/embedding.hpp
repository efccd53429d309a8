#pragma once

#include <cstdint>
#include <vector>

#include "autograd_tape.hpp"

namespace perfmodel {

/// The `mode` of embedding bags that sum their rows.
inline constexpr std::int64_t kModeSum = 0;

/// nn.EmbeddingBag(mode="sum"): one table, weights [rows, dim], indices [N], offsets [B]. A sparse
/// gradient has one entry per lookup.
TensorRef embedding_bag(AutogradTape& tape, TensorRef weight, TensorRef indices, TensorRef offsets,
                        bool sparse = true);

/// Inputs of the backward pass of one lookup.
struct Bag {
  std::int64_t rows = 0;
  TensorRef indices, offsets;
  TensorRef offset_to_bag = {}, bag_size = {}, maximum_indices = {};
  bool sparse = true;
  // Dense gradients only:
  bool scale_by_frequency = false;
  std::int64_t mode = 0;  ///< 0: sum, 1: mean, 2: maximum
  TensorRef per_sample_weights = {};
  std::int64_t padding_row = -1;  ///< -1: none
};
TensorRef embedding_bag_backward(GraphBuilder& graph, Bag bag, TensorRef gradient);
/// The kernel's op of a dense gradient. Lookups are sorted by row, so that each row is written by
/// one thread.
TensorRef dense_bag_backward(GraphBuilder& graph, const Bag& bag, TensorRef gradient);

/// FBGEMM's SplitTableBatchedEmbeddingBags: all tables in one op, the optimizer in its backward.
struct TableBatch {
  enum class Optimizer { kSgd, kAdagrad, kRowwiseAdagrad, kAdam } optimizer = Optimizer::kSgd;
  std::vector<std::int64_t> rows, dims;
  double learning_rate = 0;
  /// The empty tensor that lets autograd see the lookup, if it is a parameter of the model.
  TensorRef placeholder = {};
};

/// indices [N], offsets [T * B + 1], table by table; the result is [B, sum of dims].
TensorRef table_batched_lookup(AutogradTape& tape, const TableBatch& tables, std::int64_t batch,
                               TensorRef indices, TensorRef offsets);

/// FBGEMM's DenseTableBatchedEmbeddingBags: `weights` [elements] are a parameter with a dense
/// gradient. Otherwise the same.
TensorRef dense_table_batched_lookup(AutogradTape& tape, const TableBatch& tables,
                                     TensorRef weights, std::int64_t batch, TensorRef indices,
                                     TensorRef offsets);

}  // namespace perfmodel
