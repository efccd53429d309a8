#pragma once

#include <functional>

#include "transformer_parts.hpp"

namespace perfmodel {

/// The parameters of one layer of experts.
struct ExpertLayer {
  LinearWeights router;
  TensorRef gate, up, down;  // all experts: [E, out, in]; the gate may not exist
  LinearWeights shared_gate, shared_up, shared_down;  // may not exist
};

/// `gated`: activation(gate) * up, else activation(up).
ExpertLayer make_expert_layer(TrainingStep& step, const ExpertsConfig& config, std::int64_t width,
                              std::int64_t feed_forward, bool gated);

/// The result of a layer, and its part of the loss.
struct ExpertsResult {
  TensorRef out;           ///< [B, S, H]
  TensorRef balance_loss;  ///< a number; exists only if asked for
};
ExpertsResult apply_experts(AutogradTape& tape, const ExpertsConfig& config,
                            const ExpertLayer& layer, TensorRef x,
                            const std::function<TensorRef(TensorRef)>& activation);

/// The loss of the tokens plus the layers' losses, weighted.
TensorRef with_balance_losses(AutogradTape& tape, const ExpertsConfig& config, TensorRef loss,
                              const std::vector<TensorRef>& of_layers);

/// Errors: fewer experts than a token takes, experts on a CPU or before PyTorch 2.1, sizes that are
/// negative or that make tensors of 2^60 elements.
Result<void> check_experts(const TransformerConfig& config, const ExpertsConfig& experts);

}  // namespace perfmodel
