#include "optimizers.hpp"

#include <fmt/format.h>

#include <utility>

#include "foreach.hpp"
#include "memory.hpp"
#include "optimizer_kinds.hpp"
#include "update.hpp"

namespace perfmodel {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

std::string_view optimizer_class(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kNoOptimizer:
      break;
    case Optimizer::kSgd:
    case Optimizer::kMomentum:
      return "SGD";
    case Optimizer::kAdagrad:
      return "Adagrad";
    case Optimizer::kAdam:
      return "Adam";
    case Optimizer::kAdamW:
      return "AdamW";
  }
  return "";
}

OptimizerSettings optimizer_settings(Optimizer optimizer, Implementation implementation) {
  OptimizerSettings settings{.optimizer = optimizer, .implementation = implementation};
  if (optimizer == Optimizer::kAdagrad) settings.eps = 1e-10;
  if (optimizer == Optimizer::kAdam || optimizer == Optimizer::kAdamW) {
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
  if (optimizer == Optimizer::kNoOptimizer || implementation != Implementation::kFused) return {};
  const auto name = optimizer_class(optimizer);
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

std::vector<TensorRef> listed(const std::vector<ParameterUpdate>& updates,
                              TensorRef ParameterUpdate::*field) {
  std::vector<TensorRef> list;
  list.reserve(updates.size());
  for (const ParameterUpdate& update : updates) list.push_back(update.*field);
  return list;
}

// PyTorch 2 adds a tensor to counters on the CPU, so that not every one wraps the number anew.
void foreach_count(GraphBuilder& graph, const std::vector<TensorRef>& steps) {
  const bool on_cpu = !steps.empty() && graph.device(steps.front()) == GraphBuilder::cpu();
  if (on_cpu && !graph.pytorch().before(2, 0)) {
    foreach_add_tensor_(graph, steps, cpu_number(graph));
  } else {
    foreach_add_number_(graph, steps, 1);
  }
}

std::vector<TensorRef> foreach_decayed(GraphBuilder& graph, const OptimizerSettings& settings,
                                       const std::vector<TensorRef>& parameters,
                                       const std::vector<TensorRef>& gradients) {
  if (!graph.pytorch().before(2, 0)) {
    return foreach_add(graph, gradients, parameters, settings.weight_decay);
  }
  foreach_add_(graph, gradients, parameters, settings.weight_decay);
  return gradients;
}

namespace {

void add_missing_state(GraphBuilder& graph, const OptimizerSettings& settings,
                       std::vector<ParameterUpdate>& updates) {
  const Optimizer kind = settings.optimizer;
  const bool adam = kind == Optimizer::kAdam || kind == Optimizer::kAdamW;
  const bool fused = settings.implementation == Implementation::kFused;
  for (ParameterUpdate& update : updates) {
    if (kind == Optimizer::kSgd) continue;
    if (!update.first.exists()) update.first = like(graph, update.parameter);
    if (adam && !update.second.exists()) update.second = like(graph, update.parameter);
    if ((adam || kind == Optimizer::kAdagrad) && !update.step.exists()) {
      const Device device = fused ? graph.device(update.parameter) : GraphBuilder::cpu();
      update.step = graph.new_tensor(DType::kFloat32, device, {});
    }
  }
}

}  // namespace

void emit_optimizer(GraphBuilder& graph, const OptimizerSettings& given,
                    std::vector<ParameterUpdate> updates) {
  OptimizerSettings settings = given;
  settings.implementation = resolved(settings.implementation, graph.pytorch());
  std::erase_if(updates, [](const ParameterUpdate& update) { return !update.gradient.exists(); });
  for (const ParameterUpdate& update : updates) {
    if (graph.is_sparse(update.gradient)) settings.implementation = Implementation::kLoop;
  }
  if (updates.empty()) return;
  add_missing_state(graph, settings, updates);
  switch (settings.optimizer) {
    case Optimizer::kNoOptimizer:
      break;
    case Optimizer::kSgd:
    case Optimizer::kMomentum:
      emit_sgd(graph, settings, updates);
      break;
    case Optimizer::kAdagrad:
      emit_adagrad(graph, settings, updates);
      break;
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
      emit_adam(graph, settings, updates);
      break;
  }
}

void emit_optimizer(GraphBuilder& graph, Optimizer optimizer, Implementation implementation,
                    const std::vector<TensorRef>& parameters,
                    const std::vector<TensorRef>& gradients) {
  PERFMODEL_CHECK(parameters.size() == gradients.size());
  std::vector<ParameterUpdate> updates;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    updates.push_back({.parameter = parameters[i], .gradient = gradients[i]});
  }
  emit_optimizer(graph, optimizer_settings(optimizer, implementation), std::move(updates));
}

void zero_gradients(GraphBuilder& graph, Implementation implementation,
                    const std::vector<TensorRef>& gradients, std::int64_t sequence) {
  const bool told =
      implementation == Implementation::kForeach || implementation == Implementation::kFused;
  if (told && !graph.pytorch().before(2, 0) && !gradients.empty()) {
    foreach_zero_(graph, gradients, sequence);
    return;
  }
  for (TensorRef gradient : gradients) zero(graph, gradient, sequence);
}

}  // namespace perfmodel
