#include "foreach.hpp"
#include "optimizer_kinds.hpp"
#include "sparse_update.hpp"
#include "update.hpp"

namespace perfmodel {
namespace {

void sgd_loop(GraphBuilder& graph, const OptimizerSettings& settings, bool momentum,
              const std::vector<ParameterUpdate>& updates) {
  for (const ParameterUpdate& update : updates) {
    TensorRef gradient = update.gradient;
    if (graph.is_sparse(gradient)) {
      add_sparse_(graph, update.parameter, gradient, -settings.learning_rate);
      continue;
    }
    if (settings.weight_decay != 0) {
      gradient = add_scaled(graph, gradient, update.parameter, settings.weight_decay);
    }
    if (momentum) {
      mul_number_(graph, update.first);
      add_scaled_(graph, update.first, gradient, 1);
      gradient = update.first;
    }
    add_scaled_(graph, update.parameter, gradient, -settings.learning_rate);
  }
}

void sgd_foreach(GraphBuilder& graph, const OptimizerSettings& settings, bool momentum,
                 const std::vector<ParameterUpdate>& updates) {
  const auto parameters = listed(updates, &ParameterUpdate::parameter);
  auto gradients = listed(updates, &ParameterUpdate::gradient);
  if (settings.weight_decay != 0) {
    gradients = foreach_add(graph, gradients, parameters, settings.weight_decay);
  }
  if (momentum) {
    const auto buffers = listed(updates, &ParameterUpdate::first);
    foreach_mul_number_(graph, buffers, settings.momentum);
    foreach_add_(graph, buffers, gradients, 1);
    gradients = buffers;
  }
  foreach_add_(graph, parameters, gradients, -settings.learning_rate);
}

void sgd_fused(GraphBuilder& graph, const OptimizerSettings& settings, bool momentum,
               const std::vector<ParameterUpdate>& updates) {
  const auto buffers = momentum ? listed(updates, &ParameterUpdate::first) : TensorList{};
  graph.leaf_op(
      "aten::_fused_sgd_",
      {listed(updates, &ParameterUpdate::parameter), listed(updates, &ParameterUpdate::gradient),
       buffers, settings.weight_decay, momentum ? settings.momentum : 0.0, settings.learning_rate,
       0.0, false, false, false, kNone, kNone},
      {});
}

}  // namespace

void emit_sgd(GraphBuilder& graph, const OptimizerSettings& settings,
              const std::vector<ParameterUpdate>& updates) {
  const bool momentum = settings.optimizer == TrainingOptions::Optimizer::kMomentum;
  if (settings.implementation == TrainingOptions::Implementation::kLoop) {
    sgd_loop(graph, settings, momentum, updates);
  } else if (settings.implementation == TrainingOptions::Implementation::kForeach) {
    sgd_foreach(graph, settings, momentum, updates);
  } else {
    sgd_fused(graph, settings, momentum, updates);
  }
}

}  // namespace perfmodel
