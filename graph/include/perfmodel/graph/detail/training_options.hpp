#pragma once

#include <optional>
#include <string>

#include "perfmodel/graph/detail/pytorch.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Settings of all model builders: the device, and the step around the model.
struct TrainingOptions {
  PyTorch pytorch;

  /// Type of parameters and activations. A half type means `model.to(torch.bfloat16)`; language
  /// models still compute their loss in float32.
  DType weights = DType::kFloat32;

  enum class Phase {
    kTraining,  ///< forward, zero_grad, backward, optimizer
    kForward,   ///< forward pass of a training step alone, loss included
  } phase = Phase::kTraining;

  enum class Optimizer {
    kNoOptimizer,  ///< forward and backward pass, gradients stay
    kSgd,
    kMomentum,  ///< SGD with momentum 0.9
    kAdagrad,
    kAdam,
    kAdamW,
    kSparseAdam,  ///< torch.optim.SparseAdam: of sparse gradients alone
    kBertAdam,    ///< pytorch_pretrained_bert has it: it clips each gradient and corrects no mean
  } optimizer = Optimizer::kSgd;

  /// How PyTorch walks the parameters. kDefault: what this version does on this device (a loop
  /// before 2.0 and on CPUs, else foreach).
  enum class Implementation {
    kDefault,
    kLoop,      ///< a handful of ops per parameter
    kForeach,   ///< `aten::_foreach_*` over all parameters
    kFused,     ///< one `aten::_fused_*` op
    kEightBit,  ///< Adam with state in 8 bits and one kernel per parameter (bitsandbytes)
  } implementation = Implementation::kDefault;

  /// Unset: 0.01 for SGD and Adagrad, 0.001 for Adam; no decay except for AdamW (0.01). They change
  /// numbers in arguments, and a decay adds an op.
  std::optional<double> learning_rate, weight_decay;

  /// Gradients become None before the backward pass (PyTorch 2's default), so nothing is set to
  /// zero and the first gradient is kept as it comes. Unset: what this version does.
  enum class ZeroGrad { kDefault, kToNone, kToZero } zero_grad = ZeroGrad::kDefault;

  /// Where zero_grad is called.
  enum class ZeroGradPlace {
    kBeforeBackward,  ///< after the loss
    kBeforeForward,   ///< after the copies of the batch
    kBeforeLoss,      ///< between the model and its loss
  } zero_grad_place = ZeroGradPlace::kBeforeBackward;

  /// The batch is in pinned host memory, so copying it does not block the host.
  bool pinned_input = true;

  /// The batch is on the model's device already; nothing is copied.
  bool resident_input = false;

  /// Regions `## forward ##`, `## backward ##` and `## optimizer ##` around the parts of the step,
  /// as PyTorch's benchmark scripts put them. The loss belongs to one or the other.
  enum class Regions { kOff, kLossInForward, kLossInBackward } regions = Regions::kOff;

  /// Name of the region around the step; empty: none.
  std::string step_label = "ProfilerStep#0";

  bool zero_grad_to_none() const {
    return zero_grad == ZeroGrad::kDefault ? !pytorch.before(2, 0) : zero_grad == ZeroGrad::kToNone;
  }
};

}  // namespace perfmodel
