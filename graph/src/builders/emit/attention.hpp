#pragma once

#include <optional>

#include "autograd_tape.hpp"

namespace perfmodel {

/// F.scaled_dot_product_attention as one library op: q [B, H, S, D], k and v [B, H, T, D] ->
/// [B, H, S, D]. Which kernel PyTorch takes depends on dtype and GPU: memory-efficient for float32,
/// flash or cuDNN's for half precision. The memory-efficient one and math take a mask.
struct FusedAttention {
  /// kMath: ops of its own, in fp32, as PyTorch 2.5 and later run them.
  enum class Kernel { kEfficient, kFlash, kCudnn, kMath } kernel = Kernel::kEfficient;
  double dropout = 0;
  bool causal = false;
  TensorRef mask = {};               ///< added to the scores; may not exist
  std::optional<double> scale = {};  ///< factor on the scores; unset: 1 / sqrt(D)
  /// Autocast calls the op from an op of the same name and casts what is wider to this type first.
  std::optional<DType> autocast = {};
};

TensorRef fused_attention(AutogradTape& tape, TensorRef q, TensorRef k, TensorRef v,
                          const FusedAttention& options);

/// The ops inside the call under `kMath`, without the call itself.
TensorRef math_attention(AutogradTape& tape, TensorRef q, TensorRef k, TensorRef v,
                         const FusedAttention& options);

}  // namespace perfmodel
