#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"

/// What a GPT-like decoder is and what its parts cost.
namespace perfmodel::parallel {

/// Decoder-only transformer with learned positions and tied embeddings.
struct DecoderShape {
  std::int64_t hidden = 0, heads = 0, layers = 0, seq = 0, vocab = 0;
  std::int64_t ffn_hidden = 0;  ///< 0: 4 hidden
  bool dropout = true;
  bool flash_attention = false;      ///< one fused, causal kernel; else bmm, softmax, dropout, bmm
  bool fused_cross_entropy = false;  ///< else Megatron's chain of fp32 kernels
  /// Cross entropies computed beside the loss, forward only (Composer's training metrics: two).
  int extra_losses = 0;
};

/// 12 L h^2 + 13 L h + V h + s h + 2 h for ffn_hidden = 4 h.
double decoder_parameters(const DecoderShape& shape);

/// What is kept for backward: everything; all but the attention scores; layer inputs only.
enum class Recompute : std::uint8_t { kNone, kSelective, kFull };

/// One collective, entered by all ranks together.
struct CollectiveCall {
  std::string_view kind;             ///< all_reduce, all_gather, reduce_scatter or send
  double bytes = 0;                  ///< whole buffer (the gathered size); send: the message
  std::int64_t ranks = 1;            ///< of the group
  std::int64_t nodes = 1;            ///< that the group spans
  std::int64_t groups_per_node = 1;  ///< such groups active at once: they share the network
};
/// Time of one call [us].
using CollectiveCost = std::function<double(const CollectiveCall&)>;

/// Time that the host (Python, dispatcher, autograd, driver) needs to issue work [us]. Kernels
/// start when issued and their stream is free, so a layer is never faster than its host work.
///
/// The defaults were chosen on the even rows of vTrain's single-node measurements
/// (Megatron-DeepSpeed, A100) and rounded. For comparison: one op of the A100 table in
/// `data/overheads` takes 41 us (T1 14.9 + T4 7.4, means; T2 12.4 + T3 6.0, medians). Layers that
/// wait for the host take 3.0 to 5.1 ms per microbatch in those rows, so +-20 % is the honest
/// range; other software needs other figures.
struct HostCost {
  double forward_op_us = 40;     ///< per kernel issued from Python
  double backward_op_us = 30;    ///< per kernel issued by the autograd engine
  double collective_us = 10;     ///< beside the op's own cost, per collective or send
  double recompute_us = 400;     ///< per recomputed layer: random state saved, set, restored
  double microbatch_us = 4000;   ///< per microbatch: batch, masks, loss, engine
  double launch_latency_us = 2;  ///< from the end of a launch call to the kernel's start
};

struct StepCosts {
  const Gpu* gpu = nullptr;
  const KernelModels* models = &KernelModels::heuristic();
  CollectiveCost collective_us = {};
  HostCost host = {};
  DType dtype = DType::kFloat16;         ///< activations, weights, gradients
  DType linear_dtype = DType::kFloat16;  ///< operands of linear layers; kFloat8 adds casts
  /// Multiplies the price of every kernel: sustained clocks below boost, shared board power.
  double kernel_factor = 1;
  /// Share of the matrix peak that fused attention reaches, forward and backward together, counting
  /// the causal half of its products. 0.3 suits Triton's FlashAttention 1 on A100, 0.19 on H100
  /// (long-sequence MPT rows, see docs/parallel.md); later versions reach about twice as much.
  double flash_attention_share = 0.3;
  double optimizer_bytes_per_param = 40;  ///< read and written per parameter held by a rank
};

}  // namespace perfmodel::parallel
