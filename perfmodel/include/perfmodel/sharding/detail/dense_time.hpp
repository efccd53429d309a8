#pragma once

#include <cstdint>

#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

/// Times of the layers around the tables on one GPU, kernel by kernel one after the other.
struct DenseTime {
  double bottom_forward_us = 0, bottom_backward_us = 0;
  double top_forward_us = 0, top_backward_us = 0;  ///< interaction, top MLP and loss
  double optimizer_us = 0;
  double parameters = 0, gradient_bytes = 0;  ///< gradients as they are reduced
  double last_bucket_bytes = 0;               ///< gradients that PyTorch reduces once all are known
  double memory_bytes = 0;  ///< parameters, gradients, optimizer state and activations
  bool in_range = true;     ///< every kernel's price was
};

/// Prices of the dense part for `samples` on a rank with `vectors` pooled vectors of `columns`
/// elements in all. Per layer of m x n: one GEMM forward, one for the gradient of the weights, one
/// for the gradient of the inputs (none for the first layer of the bottom MLP); bias and ReLU are
/// part of them (`fused`) or kernels of their own. fp16 and bfloat16 keep fp32 master weights.
/// Times that a study gives are taken as they are, all as the top part's.
///
/// Errors (kImpossible): widths below 1, a top MLP that is missing, an unknown dtype.
Result<DenseTime> dense_time(const DensePart& dense, std::int64_t samples, std::int64_t vectors,
                             std::int64_t columns, TableOptimizer optimizer, bool fused,
                             const Gpu& gpu, const KernelModels& models);

}  // namespace perfmodel::sharding
