#include "foreach.hpp"
#include "index.hpp"
#include "memory.hpp"
#include "optimizer_kinds.hpp"
#include "sparse.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// weight += alpha * gradient for a sparse gradient whose indices may repeat.
void add_sparse_gpu(GraphBuilder& graph, TensorRef weight, TensorRef gradient, std::int64_t entries,
                    double alpha) {
  graph.leaf_op("aten::_nnz", {gradient}, {entries});
  const TensorRef values = values_of(graph, gradient);
  to_same_dtype(graph, values);
  const TensorRef indices = indices_of(graph, gradient);
  graph.leaf_op("aten::is_coalesced", {gradient}, {false});
  const TensorRef rows = squeeze(graph, indices, 0);
  const Shape shape = graph.shape(weight);
  const TensorRef target = view(graph, weight, shape);
  const TensorRef source = reshape(graph, values, {entries, shape[1]});
  index_add_in_place(graph, target, rows, source, alpha);
}

void add_sparse_cpu(GraphBuilder& graph, TensorRef weight, TensorRef gradient,
                    std::int64_t entries) {
  graph.begin_op("aten::resize_as_", {weight, weight, kNone});
  resize_to(graph, weight, weight);
  graph.end_op({weight});
  graph.leaf_op("aten::_nnz", {gradient}, {entries});
  graph.leaf_op("aten::sparse_dim", {gradient}, {1});
  const TensorRef values = values_of(graph, gradient);
  graph.leaf_op("aten::is_coalesced", {gradient}, {false});
  indices_of(graph, gradient);
  to_same_dtype(graph, values);
  graph.leaf_op("aten::sparse_dim", {gradient}, {1});
  graph.leaf_op("aten::_nnz", {gradient}, {entries});
}

void add_sparse_(GraphBuilder& graph, TensorRef weight, TensorRef gradient, double alpha) {
  const std::int64_t entries = graph.shape(graph.sparse_values(gradient))[0];
  graph.begin_op("aten::add_.Tensor", {weight, gradient, alpha});
  graph.begin_op("aten::add.out", {weight, gradient, alpha, weight});
  if (graph.device(weight) == GraphBuilder::cpu()) {
    add_sparse_cpu(graph, weight, gradient, entries);
  } else {
    add_sparse_gpu(graph, weight, gradient, entries, alpha);
  }
  graph.end_op({weight});
  graph.end_op({weight});
}

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
