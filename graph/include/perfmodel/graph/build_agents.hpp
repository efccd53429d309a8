#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// An agent for Atari games that learns by advantage actor-critic (A3C, Mnih et al. 2016, arXiv
/// 1602.01783): two convolutions of 16 8x8 filters (stride 4) and 32 4x4 filters (stride 2), a
/// linear layer, a head for the policy and one for the value, ReLU in between.
///
/// An update is one step. First the agent acts, without gradients, `rollout` times in `batch`
/// environments: frames are copied to the device, the host waits for the probabilities, chooses and
/// plays; one more pass values where it ended. Then it learns from all batch * rollout frames,
/// which are still on the device:
///   loss = -mean(log p(a) A) + 0.5 mean(A^2) - 0.01 entropy,  A = R - V
/// The environments themselves take no time here.
struct A3cConfig {
  std::string name = "a3c";
  std::int64_t batch = 16;  ///< environments that are played together
  std::int64_t rollout = 5;
  std::int64_t frames = 4;       ///< the latest ones, as channels
  std::int64_t resolution = 84;  ///< height and width of a frame
  std::int64_t actions = 6;
  std::vector<std::int64_t> channels = {16, 32};
  std::int64_t hidden = 256;
  bool lstm = false;  ///< an LSTM cell of width `hidden` in front of the heads
  TrainingOptions training = with_adam();

 private:
  static TrainingOptions with_adam() {
    TrainingOptions options;
    options.optimizer = TrainingOptions::Optimizer::kAdam;
    return options;
  }
};

/// "a3c" (677,943 parameters with six actions) and "a3c-lstm" (1,204,279).
Result<A3cConfig> a3c_preset(std::string_view name);

/// 64 F C1 + C1 + 16 C1 C2 + C2 + (C2 S^2 + 1) H + [8 H (H + 1)] + (H + 1) (A + 1), S x S what the
/// convolutions leave of a frame.
std::int64_t parameter_count(const A3cConfig& config);

/// One update. The optimizer is Adam where the paper has RMSProp; gradients are not clipped.
///
/// Errors: sizes below 1, another number of convolutions than two, frames of which nothing is left,
/// tensors of 2^60 elements or more.
Result<ExecutionGraph> build_a3c(const A3cConfig& config);

}  // namespace perfmodel
