#include "foreach.hpp"
#include "optimizer_kinds.hpp"
#include "update.hpp"

namespace perfmodel {
namespace {

void adagrad_loop(GraphBuilder& graph, const OptimizerSettings& settings,
                  const std::vector<ParameterUpdate>& updates) {
  for (const ParameterUpdate& update : updates) {
    add_number_(graph, update.step, 1);
    item(graph, update.step, settings.steps);
    if (graph.is_sparse(update.gradient)) {
      update_adagrad_rows(graph, settings, update);
      continue;
    }
    TensorRef gradient = update.gradient;
    if (settings.weight_decay != 0) {
      gradient = add_scaled(graph, gradient, update.parameter, settings.weight_decay);
    }
    addcmul_(graph, update.first, gradient, gradient, 1);
    const TensorRef root = sqrt(graph, update.first);
    add_number_(graph, root, settings.eps);
    addcdiv_(graph, update.parameter, gradient, root, -settings.learning_rate);
  }
}

// -lr / (1 + (step - 1) * lr_decay), which PyTorch 1.13 computes with tensors.
TensorRef negative_rate(GraphBuilder& graph, TensorRef step) {
  const TensorRef behind = mul_number(graph, sub_number(graph, step), DType::kInt64);
  return mul_number(graph, reciprocal(graph, add_number(graph, behind)), DType::kFloat64);
}

void foreach_1_13(GraphBuilder& graph, const OptimizerSettings& settings,
                  const TensorList& parameters, TensorList gradients, const TensorList& sums,
                  const TensorList& steps) {
  TensorList rates;
  for (TensorRef step : steps) rates.push_back(negative_rate(graph, step));
  foreach_addcmul_(graph, sums, gradients, gradients, 1);
  const TensorList roots = foreach_add_number(graph, foreach_sqrt(graph, sums), settings.eps);
  const TensorList scaled = foreach_mul_cpu_numbers(graph, gradients, rates);
  foreach_add_(graph, parameters, foreach_div(graph, scaled, roots), 1);
}

void adagrad_foreach(GraphBuilder& graph, const OptimizerSettings& settings,
                     const std::vector<ParameterUpdate>& updates) {
  const auto parameters = listed(updates, &ParameterUpdate::parameter);
  const auto sums = listed(updates, &ParameterUpdate::first);
  const auto steps = listed(updates, &ParameterUpdate::step);
  auto gradients = listed(updates, &ParameterUpdate::gradient);
  foreach_count(graph, steps);
  if (settings.weight_decay != 0) {
    gradients = foreach_decayed(graph, settings, parameters, gradients);
  }
  if (graph.pytorch().before(2, 0)) {
    foreach_1_13(graph, settings, parameters, gradients, sums, steps);
    return;
  }
  for (TensorRef step : steps) item(graph, step, settings.steps);
  foreach_addcmul_(graph, sums, gradients, gradients, 1);
  const TensorList roots = foreach_sqrt(graph, sums);
  foreach_add_number_(graph, roots, settings.eps);
  const TensorList scaled = foreach_mul_numbers(graph, gradients, -settings.learning_rate);
  foreach_addcdiv_(graph, parameters, scaled, roots, 1);
}

}  // namespace

void emit_adagrad(GraphBuilder& graph, const OptimizerSettings& settings,
                  const std::vector<ParameterUpdate>& updates) {
  if (settings.implementation == TrainingOptions::Implementation::kLoop) {
    adagrad_loop(graph, settings, updates);
  } else {
    adagrad_foreach(graph, settings, updates);
  }
}

}  // namespace perfmodel
