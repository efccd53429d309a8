#pragma once

#include <optional>

#include "autograd_tape.hpp"

namespace perfmodel {

/// F.scaled_dot_product_attention as one library op: q [B, H, S, D], k and v [B, H, T, D] ->
/// [B, H, S, D]. Which kernel PyTorch takes depends on dtype and GPU: memory-efficient for float32,
/// flash for half precision. Flash takes no mask.
struct FusedAttention {
  enum class Kernel { kEfficient, kFlash } kernel = Kernel::kEfficient;
  double dropout = 0;
  bool causal = false;
  TensorRef mask = {};               ///< added to the scores; may not exist
  std::optional<double> scale = {};  ///< of the scores; unset: 1 / sqrt(D)
};

TensorRef fused_attention(AutogradTape& tape, TensorRef q, TensorRef k, TensorRef v,
                          const FusedAttention& options);

}  // namespace perfmodel
