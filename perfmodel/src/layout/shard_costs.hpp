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
  std::int64_t cp = 1;           ///< ranks that share the sequence
  bool context_balanced = true;  ///< all with the same share of causal attention
  std::int64_t ep = 1, etp = 1;  ///< ranks that share a layer's experts, and each one's matrices
  double expert_load = 1;        ///< rows of this rank's experts over the mean of all ranks
  std::int64_t lora_rank = 0;
  bool lora_on_all = false;
  bool fused_layers = false;  ///< kernels of Transformer Engine, not PyTorch's own

  /// Tokens of a microbatch on this rank, where its residual stream is whole.
  std::int64_t tokens() const { return micro_batch * (sequence / cp); }

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
  double state_us = 0;             ///< of kernel_us, layers of state spaces
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
  double parameters = 0;  ///< on this rank, of those that learn
  double experts = 0;     ///< of these, routed experts
  double frozen = 0;      ///< parameters on this rank that do not learn
  double kept_bytes = 0;  ///< of a microbatch, from the forward pass until the backward pass
};

struct ShardCosts {
  /// `head`: the last norm and the output layer; `loss`: all after its product.
  PartCosts embedding, layer, head, loss;
  double logit_bytes = 0;     ///< in head.kept_bytes: log-probabilities in fp32
  double boundary_bytes = 0;  ///< of a microbatch between two layers, as a rank holds it
  /// Beside what is kept, at most: while a layer's backward pass runs, and while the head does.
  double layer_extra_bytes = 0, head_extra_bytes = 0;
  /// Per layer on average: parts with a collective of tensor parallelism in front and behind that
  /// the graph does not hold, layers whose attention sees the whole sequence, layers of experts.
  double tensor_parts = 0, attending = 0, expert_layers = 0;
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
///
/// With cp > 1 a rank has sequence / cp tokens; of causal attention over all of them it does cp
/// times what its own tokens alone would take, 2 cp - 1 times where the last rank has the last
/// tokens. Of models with several kinds of layers `layer` is the mean over all layers. Errors:
/// those of `shard_graph` and of predictions.
Result<ShardCosts> shard_costs(const ShardQuestion& question, const Predictor& predictor,
                               std::string_view gpu, const AskOptions& options);

}  // namespace perfmodel
