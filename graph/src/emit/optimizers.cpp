#include "optimizers.hpp"

#include "memory.hpp"
#include "sparse.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

constexpr double kLearningRate = 0.01;

// Every foreach op with a number asks for the result type of each tensor before it takes the path
// that treats many tensors per kernel.
void foreach_op(GraphBuilder& graph, const char* op, const std::vector<TensorRef>& first,
                std::vector<Value> others, Value number, std::vector<Value> outputs = {}) {
  others.insert(others.begin(), Value(first));
  others.push_back(number);
  graph.begin_op(op, std::move(others));
  for (TensorRef x : first) {
    graph.leaf_op("aten::result_type.Scalar", {x, number}, {scalar_type_code(graph.dtype(x))});
  }
  graph.end_op(std::move(outputs));
}

std::vector<TensorRef> all_like(GraphBuilder& graph, const std::vector<TensorRef>& tensors) {
  std::vector<TensorRef> made;
  for (TensorRef x : tensors) made.push_back(like(graph, x));
  return made;
}

// weight += alpha * gradient for a sparse gradient whose indices may repeat.
void add_sparse(GraphBuilder& graph, TensorRef weight, TensorRef gradient, double alpha) {
  const std::int64_t entries = graph.shape(graph.sparse_values(gradient))[0];
  graph.begin_op("aten::add_.Tensor", {weight, gradient, alpha});
  graph.begin_op("aten::add.out", {weight, gradient, alpha, weight});
  graph.leaf_op("aten::_nnz", {gradient}, {entries});
  const TensorRef values = values_of(graph, gradient);
  to_same_dtype(graph, values);
  const TensorRef indices = indices_of(graph, gradient);
  graph.leaf_op("aten::is_coalesced", {gradient}, {false});
  const TensorRef rows = squeeze(graph, indices, 0);
  const Shape shape = graph.shape(weight);
  const TensorRef target = view(graph, weight, shape);
  const TensorRef source = reshape(graph, values, {entries, shape[1]});
  graph.leaf_op("aten::index_add_", {target, 0, rows, source, alpha}, {target});
  graph.end_op({weight});
  graph.end_op({weight});
}

void sgd_foreach(GraphBuilder& graph, const std::vector<TensorRef>& parameters,
                 const std::vector<TensorRef>& gradients) {
  foreach_op(graph, "aten::_foreach_add_.List", parameters, {gradients}, -kLearningRate);
}

void sgd_loop(GraphBuilder& graph, const std::vector<TensorRef>& parameters,
              const std::vector<TensorRef>& gradients) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const TensorRef parameter = parameters[i], gradient = gradients[i];
    if (graph.is_sparse(gradient)) {
      add_sparse(graph, parameter, gradient, -kLearningRate);
    } else {
      graph.leaf_op("aten::add_.Tensor", {parameter, gradient, -kLearningRate}, {parameter});
    }
  }
}

void adagrad_foreach(GraphBuilder& graph, const std::vector<TensorRef>& parameters,
                     const std::vector<TensorRef>& gradients) {
  const std::vector<TensorRef> sums = all_like(graph, parameters);
  std::vector<TensorRef> steps;  // counters on the CPU
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    steps.push_back(graph.new_tensor(DType::kFloat32, graph.cpu(), {}));
  }
  const TensorRef one = wrapped_number(graph, DType::kFloat32);
  graph.begin_op("aten::_foreach_add_.Tensor", {steps, one, 1.0});
  for (TensorRef step : steps) graph.leaf_op("aten::add_.Tensor", {step, one, 1.0}, {step});
  graph.end_op();
  for (TensorRef step : steps) {
    graph.begin_op("aten::item", {step});
    graph.leaf_op("aten::_local_scalar_dense", {step}, {1.0});
    graph.end_op({1.0});
  }
  foreach_op(graph, "aten::_foreach_addcmul_.Scalar", sums, {gradients, gradients}, 1);
  const std::vector<TensorRef> roots = all_like(graph, parameters);
  graph.leaf_op("aten::_foreach_sqrt", {sums}, {roots});
  foreach_op(graph, "aten::_foreach_add_.Scalar", roots, {}, 1e-10);
  const std::vector<TensorRef> scaled = all_like(graph, parameters);
  const Value::List factors(parameters.size(), Value(-kLearningRate));
  graph.begin_op("aten::_foreach_mul.ScalarList", {gradients, factors});
  for (TensorRef gradient : gradients) {
    graph.leaf_op("aten::result_type.Scalar", {gradient, -kLearningRate},
                  {scalar_type_code(graph.dtype(gradient))});
  }
  graph.end_op({scaled});
  foreach_op(graph, "aten::_foreach_addcdiv_.Scalar", parameters, {scaled, roots}, 1);
}

}  // namespace

std::string_view optimizer_class(TrainingOptions::Optimizer optimizer) {
  using Optimizer = TrainingOptions::Optimizer;
  switch (optimizer) {
    case Optimizer::kNone:
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

void emit_optimizer(GraphBuilder& graph, TrainingOptions::Optimizer optimizer,
                    TrainingOptions::Implementation implementation,
                    const std::vector<TensorRef>& parameters,
                    const std::vector<TensorRef>& gradients) {
  // Lists of tensors are for dense gradients; one sparse gradient brings back the loop.
  bool loop = implementation == TrainingOptions::Implementation::kLoop;
  for (TensorRef gradient : gradients) loop |= gradient.exists() && graph.is_sparse(gradient);
  if (optimizer == TrainingOptions::Optimizer::kAdagrad) {
    adagrad_foreach(graph, parameters, gradients);
  } else if (loop) {
    sgd_loop(graph, parameters, gradients);
  } else {
    sgd_foreach(graph, parameters, gradients);
  }
}

}  // namespace perfmodel
