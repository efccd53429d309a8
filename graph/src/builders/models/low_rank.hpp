#pragma once

#include "transformer_parts.hpp"

namespace perfmodel {

/// A linear layer with an adapter of low rank (LoRA, Hu et al. 2021, equation 3): y = x W^T + (x
/// A^T) B^T, W [out, in], A [rank, in], B [out, rank]. B includes the scale alpha / rank.
struct AdaptedLinear {
  LinearWeights base;
  TensorRef down, up;  // A and B; may not exist
};

/// `rank` 0: no adapter.
AdaptedLinear make_adapted(TrainingStep& step, std::int64_t in, std::int64_t out, bool bias,
                           std::int64_t rank, bool frozen);
TensorRef linear(AutogradTape& tape, TensorRef x, const AdaptedLinear& weights);

/// Errors: a rank below 0, adapters of feed-forward layers that are experts.
Result<void> check_lora(const LoraConfig& lora, bool with_experts);

}  // namespace perfmodel
