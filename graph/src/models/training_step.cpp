#include "training_step.hpp"

#include <fmt/format.h>

#include "../emit/memory.hpp"
#include "../emit/optimizers.hpp"

namespace perfmodel {

TensorRef TrainingStep::parameter(Shape shape) {
  const TensorRef made = graph_.new_tensor(DType::kFloat32, std::move(shape));
  TensorRef kept;
  if (!options_.zero_grad_to_none()) {
    kept = graph_.new_tensor(DType::kFloat32, graph_.shape(made));
    kept_gradients_.push_back(kept);
  }
  tape_.add_parameter(made, kept);
  parameters_.push_back(made);
  return made;
}

TensorRef TrainingStep::input(DType dtype, Shape shape) {
  const TensorRef host = graph_.new_tensor(dtype, graph_.cpu(), std::move(shape));
  return options_.pytorch.on_gpu() ? to_device(tape_, host, options_.pinned_input) : host;
}

ExecutionGraph TrainingStep::run(const std::function<TensorRef()>& loss) {
  if (!options_.step_label.empty()) graph_.begin_label(options_.step_label);
  const TensorRef made = loss();
  if (options_.phase == TrainingOptions::Phase::kTraining) {
    zero_grad();
    tape_.run(made);
    optimizer_step();
  }
  if (!options_.step_label.empty()) graph_.end_op();
  return graph_.finish();
}

void TrainingStep::zero_grad() {
  if (options_.optimizer == TrainingOptions::Optimizer::kNone) return;
  graph_.begin_label(
      fmt::format("Optimizer.zero_grad#{0}.zero_grad", optimizer_class(options_.optimizer)));
  for (TensorRef gradient : kept_gradients_) zero(graph_, gradient, tape_.sequence());
  graph_.end_op();
}

void TrainingStep::optimizer_step() {
  if (options_.optimizer == TrainingOptions::Optimizer::kNone) return;
  std::vector<TensorRef> gradients;
  for (TensorRef parameter : parameters_) gradients.push_back(tape_.gradient(parameter));
  graph_.begin_label(fmt::format("Optimizer.step#{0}.step", optimizer_class(options_.optimizer)));
  emit_optimizer(graph_, options_.optimizer, options_.implementation, parameters_, gradients);
  graph_.end_op();
}

}  // namespace perfmodel
