#include <utility>

#include "optimizer_kinds.hpp"
#include "pointwise.hpp"
#include "sparse_update.hpp"
#include "update.hpp"

namespace perfmodel {
namespace {

// A gradient with one entry per row, as an update that is not linear needs it.
struct MergedGradient {
  TensorRef sparse, indices, values;
};

MergedGradient merged(GraphBuilder& graph, TensorRef gradient) {
  const std::int64_t lookups = graph.shape(graph.sparse_values(gradient))[0];
  MergedGradient made;
  made.sparse =
      coalesce(graph, gradient, expected_distinct_rows(graph.shape(gradient)[0], lookups));
  made.indices = indices_of(graph, made.sparse);
  made.values = values_of(graph, made.sparse);
  return made;
}

// dense += alpha * values at the rows of the gradient.
void add_at_rows_(GraphBuilder& graph, SparseMaker maker, TensorRef dense,
                  const MergedGradient& gradient, TensorRef values, Value alpha) {
  const TensorRef sparse = checked_sparse_coo_tensor(graph, maker, gradient.indices, values,
                                                     graph.shape(gradient.sparse));
  add_sparse_(graph, dense, sparse, std::move(alpha));
}

TensorRef rows_of(GraphBuilder& graph, TensorRef dense, const MergedGradient& gradient) {
  return values_of(graph, sparse_mask(graph, dense, gradient.sparse));
}

}  // namespace

// torch/optim/adagrad.py, _single_tensor_adagrad, after the counter.
void update_adagrad_rows(GraphBuilder& graph, const OptimizerSettings& settings,
                         const ParameterUpdate& update) {
  constexpr SparseMaker kMaker = SparseMaker::kFunction;
  const MergedGradient gradient = merged(graph, update.gradient);
  add_at_rows_(graph, kMaker, update.first, gradient, pow(graph, gradient.values, 2), 1);
  const TensorRef roots = rows_of(graph, update.first, gradient);
  sqrt_(graph, roots);
  add_number_(graph, roots, settings.eps);
  add_at_rows_(graph, kMaker, update.parameter, gradient, div(graph, gradient.values, roots),
               -settings.learning_rate);
}

// torch/optim/_functional.py, sparse_adam. Its counter is a number of Python.
void emit_sparse_adam(GraphBuilder& graph, const OptimizerSettings& settings,
                      const std::vector<ParameterUpdate>& updates) {
  constexpr SparseMaker kMaker = SparseMaker::kConstructor;
  for (const ParameterUpdate& update : updates) {
    const MergedGradient gradient = merged(graph, update.gradient);
    const TensorRef old_means = rows_of(graph, update.first, gradient);
    const TensorRef means = sub(graph, gradient.values, old_means);
    mul_number_(graph, means);
    add_at_rows_(graph, kMaker, update.first, gradient, means, 1);
    const TensorRef old_squares = rows_of(graph, update.second, gradient);
    const TensorRef squares = pow(graph, gradient.values, 2);
    sub_(graph, squares, old_squares);
    mul_number_(graph, squares);
    add_at_rows_(graph, kMaker, update.second, gradient, squares, 1);
    add_(graph, means, old_means);
    add_(graph, squares, old_squares);
    sqrt_(graph, squares);
    add_number_(graph, squares, settings.eps);
    div_(graph, means, squares);
    const TensorRef change = mul_number(graph, means, DType::kFloat64);
    add_at_rows_(graph, kMaker, update.parameter, gradient, change, 1);
  }
}

}  // namespace perfmodel
