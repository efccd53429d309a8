#include "optimizers.hpp"

#include <utility>

#include "foreach.hpp"
#include "memory.hpp"
#include "optimizer_kinds.hpp"
#include "update.hpp"

namespace perfmodel {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

namespace {

void add_missing_state(GraphBuilder& graph, const OptimizerSettings& settings,
                       std::vector<ParameterUpdate>& updates) {
  const Optimizer kind = settings.optimizer;
  const bool sparse = kind == Optimizer::kSparseAdam;
  const bool counts = kind == Optimizer::kAdam || kind == Optimizer::kAdamW;
  const bool adam = counts || sparse || kind == Optimizer::kBertAdam;
  if (adam && settings.implementation == Implementation::kEightBit) {
    add_eight_bit_state(graph, updates);
    return;
  }
  const bool fused = settings.implementation == Implementation::kFused;
  for (ParameterUpdate& update : updates) {
    if (kind == Optimizer::kSgd) continue;
    if (!update.first.exists()) update.first = like(graph, update.parameter);
    if (adam && !update.second.exists()) update.second = like(graph, update.parameter);
    if ((counts || kind == Optimizer::kAdagrad) && !update.step.exists()) {
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
    case Optimizer::kNoOptimizer: break;
    case Optimizer::kSgd:
    case Optimizer::kMomentum: emit_sgd(graph, settings, updates); break;
    case Optimizer::kAdagrad: emit_adagrad(graph, settings, updates); break;
    case Optimizer::kAdam:
    case Optimizer::kAdamW: emit_adam(graph, settings, updates); break;
    case Optimizer::kBertAdam: emit_bert_adam(graph, settings, updates); break;
    case Optimizer::kSparseAdam: emit_sparse_adam(graph, settings, updates); break;
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
