#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fused_group.hpp"

namespace perfmodel {

/// The linear layer that makes the logits of a loss, with the ops between.
struct LogitsLayer {
  std::int32_t op = -1;
  const Version *input = nullptr, *weight = nullptr, *bias = nullptr;
  const Version* logits = nullptr;         ///< as the layer gives them
  std::optional<std::int32_t> slice = {};  ///< an op that leaves some tokens out
};

/// A cross-entropy over classes in single ops.
struct UnfusedLoss {
  const Version *logits = nullptr, *target = nullptr;
  bool is_scaled = true;  ///< its gradient is not the one that the backward pass starts from
  std::optional<LogitsLayer> layer = {};
  FusedGroup group = {};
};

/// Tensors that lie in the memory of another one: storages as the source knows them, and their new
/// ones.
using SharedStorages = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Liger's `LigerCrossEntropyFunction.backward` and the one of the fused linear layer begin alike:
/// gradients that the forward pass made are multiplied by the gradient of the loss unless that is
/// one, for which the host waits.
void write_scaling(GraphBuilder& builder, const UnfusedLoss& loss, TensorRef gradient,
                   const std::vector<TensorRef>& made);

/// The sum of targets that count, for which the host waits.
void write_target_count(GraphBuilder& builder, TensorRef target);

/// `liger::cross_entropy`: puts the gradient in the place of the logits.
void write_cross_entropy(GraphBuilder& builder, TensorRef logits, TensorRef target,
                         TensorRef losses);

/// Gives a tensor of the forward pass the id that the source's backward pass knows.
void hand_over(GraphBuilder& builder, TensorRef made, TensorRef part, SharedStorages& shared);

/// The rewrite of a loss whose `layer` is known; `shared` grows as it is written.
void replace_linear_loss(GraphEdit& edit, const StepView& step, const UnfusedLoss& loss,
                         SharedStorages& shared);

}  // namespace perfmodel
