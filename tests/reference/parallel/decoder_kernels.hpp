#pragma once

#include <cstdint>
#include <vector>

#include "decoder_shape.hpp"

namespace perfmodel::parallel {

/// One thing the host issues: a kernel or a collective on the compute stream (or host work alone).
struct IssuedOp {
  double host_us = 0;
  double device_us = 0;
  bool launches = true;
  bool collective = false;
};
using OpList = std::vector<IssuedOp>;

void append(OpList& list, const OpList& more);
double kernel_us(const OpList& list);  ///< without collectives
double collective_us(const OpList& list);
double host_us(const OpList& list);

/// Kernels of one microbatch of `sequences` on one of `tp` tensor-parallel ranks, priced.
class DecoderKernels {
 public:
  DecoderKernels(const DecoderShape& shape, const StepCosts& costs, std::int64_t sequences,
                 std::int64_t tp, std::int64_t gpus_per_node, bool sequence_parallel = false);

  OpList layer_forward() const { return layer_forward(false); }
  /// Backward of one layer, recomputation first; `accumulates`: gradients are added to earlier
  /// ones.
  OpList layer_backward(Recompute recompute, bool accumulates) const;
  OpList embedding_forward() const;
  OpList embedding_backward() const;
  OpList head_forward() const;  ///< final norm, logits, loss
  OpList head_backward() const;

  double layer_params() const;      ///< on one rank
  double token_params() const;      ///< embedding of the tokens, on one rank
  double embedding_params() const;  ///< tokens and positions, on one rank
  double item_bytes() const { return item_; }
  double activation_bytes() const { return tokens_ * hidden_ * item_; }
  /// What one rank holds of it between the blocks that are split over the ranks.
  double held_bytes() const { return held_tokens_ * hidden_ * item_; }

  /// Clipping and Adam on `params` parameters.
  double optimizer_us(double params) const;

 private:
  struct Issue;  // fills an OpList in one pass (forward or backward)
  OpList layer_forward(bool is_recompute) const;
  void attention_forward(Issue& issue) const;
  void attention_backward(Issue& issue) const;

  const StepCosts& costs_;
  bool flash_, dropout_, fused_loss_, split_sequence_;
  int extra_losses_;
  double sequences_, seq_, tokens_, held_tokens_, hidden_, heads_, ffn_, vocab_, tp_, nodes_;
  double item_;  // bytes per element
};

}  // namespace perfmodel::parallel
