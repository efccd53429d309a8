#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/layout.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One rank's part of a model and of a microbatch: all that fixes the prices of its layers.
struct ShardQuestion {
  DecoderModel model;
  std::int64_t sequence = 0, micro_batch = 1, tp = 1;
  bool sequence_parallel = false;
  LayoutJob::Precision precision = LayoutJob::Precision::kBf16;
  LayoutJob::Attention attention = LayoutJob::Attention::kFlash;
  double dropout = 0;
  LayoutRecompute recompute = LayoutRecompute::kNone;

  /// Two questions with the same text have the same answer.
  std::string key() const;
};

/// Collectives of one kind: how many, and their buffers (as `CollectiveQuery` counts them) and
/// times in all.
struct CollectiveSum {
  double count = 0, bytes = 0, us = 0;
};

/// Collectives of tensor parallelism in one pass.
struct CollectiveSums {
  CollectiveSum all_reduce, all_gather, reduce_scatter;
  CollectiveSums& operator+=(const CollectiveSums& other);
  CollectiveSums& operator*=(double times);
};

/// What one microbatch costs on one rank in one pass over a part of the model [us].
struct PassCosts {
  double kernel_us = 0;            ///< without collectives
  double attention_us = 0;         ///< of kernel_us, fused attention
  double product_us = 0;           ///< of kernel_us, matrix products
  double low_us = 0, high_us = 0;  ///< range of kernel_us
  double comm_us = 0;              ///< collectives of tensor parallelism
  double host_us = 0;              ///< the host's own work
  std::int64_t ops = 0;            ///< top-level ops that the host issues
  std::int64_t collectives = 0;
  CollectiveSums by_kind;  ///< of comm_us
};
PassCosts operator+(PassCosts a, const PassCosts& b);
PassCosts operator-(PassCosts a, const PassCosts& b);
PassCosts operator*(double count, PassCosts a);

/// A part of the model: the embeddings, one layer, the output layer or the loss.
struct PartCosts {
  PassCosts forward, backward;
  /// Of `backward`, what computes the forward pass again.
  PassCosts again;
  double parameters = 0;  ///< on this rank
  double kept_bytes = 0;  ///< of a microbatch, from the forward pass until the backward pass
};

struct ShardCosts {
  /// `head`: the last norm and the output layer; `loss`: what stands behind its product.
  PartCosts embedding, layer, head, loss;
  double boundary_bytes = 0;  ///< of a microbatch between two layers, as a rank holds it
  /// Beside what is kept, at most: while a layer's backward pass runs, and while the head does.
  double layer_extra_bytes = 0, head_extra_bytes = 0;
  std::vector<std::string> warnings;
};

/// Vocabulary as Megatron pads it: to a multiple of 128 rows per tensor-parallel rank.
std::int64_t padded_vocabulary(std::int64_t vocabulary, std::int64_t tp);

/// One training step of `layers` layers of the model without an optimizer, as one rank runs it.
/// Errors: sizes that do not divide.
Result<ExecutionGraph> shard_graph(const ShardQuestion& question, std::int64_t layers);

/// Prices of the parts, from the predictions of a graph with one layer and of one with two: what
/// the second has more is a layer, what is left of the first are embeddings, output layer and
/// loss. With full
/// recomputation a layer's backward pass begins with its forward pass and keeps its input alone.
/// Errors: those of `shard_graph` and of predictions.
Result<ShardCosts> shard_costs(const ShardQuestion& question, const Predictor& predictor,
                               std::string_view gpu, const AskOptions& options);

}  // namespace perfmodel
