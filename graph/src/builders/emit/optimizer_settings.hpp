#pragma once

#include <string_view>

#include "graph_builder.hpp"
#include "perfmodel/graph/detail/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// "SGD", "AdamW", ...: PyTorch's name for it in the labels of step and zero_grad.
std::string_view optimizer_class(TrainingOptions::Optimizer optimizer);

/// Update of one parameter in one step. Missing state is made on the way.
struct ParameterUpdate {
  TensorRef parameter, gradient;
  TensorRef step;    ///< counter of Adagrad and Adam: on the CPU, for fused steps with the rest
  TensorRef first;   ///< momentum buffer, Adagrad's sum, Adam's mean
  TensorRef second;  ///< Adam's mean of squares
  TensorRef first_scale, second_scale;  ///< both in 8 bits: one number per block
};

/// Numbers of a step; only the arguments of its ops contain them.
struct OptimizerSettings {
  TrainingOptions::Optimizer optimizer = TrainingOptions::Optimizer::kSgd;
  /// kDefault is the default of this PyTorch on this device.
  TrainingOptions::Implementation implementation = TrainingOptions::Implementation::kDefault;
  double learning_rate = 0.01, weight_decay = 0;
  double momentum = 0.9, beta1 = 0.9, beta2 = 0.999, eps = 0;
  double steps = 4;  ///< the counter after this step; Adam's corrections follow from it

  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

/// With PyTorch's default numbers; SGD learns at 0.01.
OptimizerSettings optimizer_settings(TrainingOptions::Optimizer optimizer,
                                     TrainingOptions::Implementation implementation);

TrainingOptions::Implementation resolved(TrainingOptions::Implementation implementation,
                                         const PyTorch& pytorch);

/// Fails if this PyTorch has no such step: fused ones on a CPU, of Adagrad, of SGD before 2.3, of
/// AdamW before 2.0; in 8 bits all except Adam and AdamW on a GPU.
Result<void> check_optimizer(TrainingOptions::Optimizer optimizer,
                             TrainingOptions::Implementation implementation,
                             const PyTorch& pytorch);

}  // namespace perfmodel
