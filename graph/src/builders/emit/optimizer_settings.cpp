#include "optimizer_settings.hpp"

#include <fmt/format.h>

namespace perfmodel {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

std::string_view optimizer_class(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kNoOptimizer: break;
    case Optimizer::kSgd:
    case Optimizer::kMomentum: return "SGD";
    case Optimizer::kAdagrad: return "Adagrad";
    case Optimizer::kAdam: return "Adam";
    case Optimizer::kAdamW: return "AdamW";
    case Optimizer::kSparseAdam: return "SparseAdam";
    case Optimizer::kBertAdam: return "BertAdam";
  }
  return "";
}

OptimizerSettings optimizer_settings(Optimizer optimizer, Implementation implementation) {
  OptimizerSettings settings{.optimizer = optimizer, .implementation = implementation};
  if (optimizer == Optimizer::kAdagrad) settings.eps = 1e-10;
  if (optimizer == Optimizer::kAdam || optimizer == Optimizer::kAdamW ||
      optimizer == Optimizer::kSparseAdam) {
    settings.learning_rate = 0.001;
    settings.eps = 1e-8;
  }
  if (optimizer == Optimizer::kAdamW) settings.weight_decay = 0.01;
  return settings;
}

Implementation resolved(Implementation implementation, const PyTorch& pytorch) {
  if (implementation != Implementation::kDefault) return implementation;
  return pytorch.before(2, 0) || !pytorch.on_gpu() ? Implementation::kLoop
                                                   : Implementation::kForeach;
}

Result<void> check_optimizer(Optimizer optimizer, Implementation implementation,
                             const PyTorch& pytorch) {
  const auto name = optimizer_class(optimizer);
  if (implementation == Implementation::kEightBit) {
    if (optimizer != Optimizer::kAdam && optimizer != Optimizer::kAdamW) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("8-bit state: expected Adam or AdamW, found {}",
                              name.empty() ? "no optimizer" : name));
    }
    if (pytorch.on_gpu()) return {};
    return fail(ErrorCode::kImpossible,
                fmt::format("8-bit {}: expected parameters on a GPU, found a CPU", name));
  }
  if (optimizer == Optimizer::kBertAdam && implementation != Implementation::kDefault &&
      implementation != Implementation::kLoop) {
    return fail(ErrorCode::kImpossible, "BertAdam: expected a loop, its library has nothing else");
  }
  if (optimizer == Optimizer::kNoOptimizer || implementation != Implementation::kFused) return {};
  if (optimizer == Optimizer::kSparseAdam) {
    return fail(ErrorCode::kImpossible,
                "fused SparseAdam: expected a loop, PyTorch has no fused step for it");
  }
  if (!pytorch.on_gpu()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("fused {}: expected parameters on a GPU, found a CPU", name));
  }
  if (optimizer == Optimizer::kAdagrad) {
    return fail(ErrorCode::kImpossible,
                "fused Adagrad: expected loop or foreach, PyTorch has no fused step for GPUs");
  }
  const bool sgd = optimizer == Optimizer::kSgd || optimizer == Optimizer::kMomentum;
  const int major = optimizer == Optimizer::kAdam ? 1 : 2;
  const int minor = optimizer == Optimizer::kAdam ? 13 : sgd ? 3 : 0;
  if (pytorch.before(major, minor)) {
    return fail(ErrorCode::kImpossible,
                fmt::format("fused {}: expected PyTorch {}.{} or later, found {}.{}", name, major,
                            minor, pytorch.major, pytorch.minor));
  }
  return {};
}

}  // namespace perfmodel
