#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/layout.hpp"

/// Prices of the parts of one rank's model.
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
  std::int64_t chunks = 1;       ///< chunks of the model, for recomputation per chunk
  bool compiled = false;         ///< each layer by torch.compile
  std::int64_t cp = 1;           ///< ranks that share the sequence
  bool context_balanced = true;  ///< all with the same share of causal attention
  std::int64_t ep = 1, etp = 1;  ///< ranks that share a layer's experts, and each one's matrices
  double expert_load = 1;        ///< rows of this rank's experts over the mean of all ranks
  std::int64_t lora_rank = 0;
  bool lora_on_all = false;
  bool fp8_activations = false;   ///< inputs of products are kept in fp8
  bool fused_layers = false;      ///< kernels of Transformer Engine, not PyTorch's own
  bool fused_sinks = false;       ///< the kernel of attention knows the learned term of its softmax
  bool fused_pointwise = true;    ///< see Framework, as is the next
  bool plain = false;             ///< see Framework::plain_pytorch
  bool copies_gradients = false;  ///< with `plain`: into buckets of DDP and back

  /// Tokens of a microbatch on this rank, where its residual stream is whole.
  std::int64_t tokens() const { return micro_batch * (sequence / cp); }
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

/// The cost of one microbatch on one rank in one pass over a part of the model [us].
struct PassCosts {
  double kernel_us = 0;            ///< without collectives
  double attention_us = 0;         ///< part of kernel_us: fused attention
  double product_us = 0;           ///< part of kernel_us: matrix products
  double state_us = 0;             ///< part of kernel_us: layers of state spaces
  double low_us = 0, high_us = 0;  ///< range of kernel_us
  double comm_us = 0;              ///< collectives of tensor parallelism
  double host_us = 0;              ///< the host's own work
  double attention_host_us = 0;    ///< part of it up to the product after attention
  double router_host_us = 0;       ///< part of it from there to the experts
  std::int64_t ops = 0;            ///< top-level ops that the host issues
  std::int64_t collectives = 0;
  CollectiveSums by_kind;  ///< the sums of comm_us
};
PassCosts operator+(PassCosts a, const PassCosts& b);
PassCosts operator-(PassCosts a, const PassCosts& b);
PassCosts operator*(double count, PassCosts a);

/// A part of the model: the embeddings, one layer, the output layer or the loss.
struct PartCosts {
  PassCosts forward, backward;
  /// The part of `backward` that computes the forward pass again, and the shares of the exchanges
  /// with experts and with other parts of the sequence that are repeated.
  PassCosts again;
  double experts_again = 0, context_again = 0;
  double parameters = 0;    ///< on this rank, of those that learn
  double experts = 0;       ///< part of these: routed experts
  double frozen = 0;        ///< parameters on this rank that do not learn
  double kept_bytes = 0;    ///< per microbatch, from the forward pass until the backward pass
  double pinned_bytes = 0;  ///< pinned blocks that a layer's fill on the host
};

struct ShardCosts {
  /// `head`: the last norm and the output layer; `loss`: all after its product.
  PartCosts embedding, layer, head, loss;
  /// With `plain`: the step of AdamW on whole parameters, of a layer and of all the rest.
  PassCosts layer_update, other_update;
  double logit_bytes = 0;     ///< in head.kept_bytes: log-probabilities in fp32
  double boundary_bytes = 0;  ///< per microbatch between two layers, as a rank holds it
  /// In addition to the kept bytes, at most: while a layer's backward pass runs, and while the
  /// head's does.
  double layer_extra_bytes = 0, head_extra_bytes = 0;
  /// Per layer on average: parts with a collective of tensor parallelism before and after them that
  /// the graph does not hold, layers whose attention sees the whole sequence, layers of experts.
  double tensor_parts = 0, attending = 0, expert_layers = 0;
};

/// Type of weights and activations outside of narrow products.
DType weights_of(LayoutJob::Precision precision);
/// Bytes of such a number.
double weight_width(LayoutJob::Precision precision);

}  // namespace perfmodel
