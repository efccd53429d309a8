#include "training_step.hpp"

#include <fmt/format.h>

#include <utility>

#include "builders/emit/memory.hpp"
#include "builders/emit/optimizers.hpp"
#include "builders/emit/region.hpp"

namespace perfmodel {

TensorRef TrainingStep::parameter(Shape shape, bool sparse_gradient) {
  const TensorRef made = graph_.new_tensor(options_.weights, std::move(shape));
  return frozen_ ? made : adopt_parameter(made, sparse_gradient);
}

TensorRef TrainingStep::adopt_parameter(TensorRef made, bool sparse_gradient) {
  TensorRef kept;
  if (!options_.zero_grad_to_none()) {
    kept = graph_.new_tensor(graph_.dtype(made), graph_.shape(made));
    if (sparse_gradient) {
      const TensorRef indices = graph_.new_tensor(DType::kInt64, {1, 0});
      kept = graph_.new_sparse(graph_.shape(made), indices, kept);
    }
    kept_gradients_.push_back(kept);
  }
  tape_.add_parameter(made, kept);
  parameters_.push_back(made);
  return made;
}

TensorRef TrainingStep::input(DType dtype, Shape shape) {
  if (options_.resident_input) return graph_.new_tensor(dtype, std::move(shape));
  const TensorRef host = graph_.new_tensor(dtype, graph_.cpu(), std::move(shape));
  if (!options_.pytorch.on_gpu()) return host;
  return to_device(tape_.graph(), host, options_.pinned_input, tape_.sequence());
}

ExecutionGraph TrainingStep::run(const Parts& parts) {
  using Place = TrainingOptions::ZeroGradPlace;
  const bool late_loss = options_.regions == TrainingOptions::Regions::kLossInBackward;
  if (!options_.step_label.empty()) begin_region(graph_, options_.step_label);
  if (parts.inputs) parts.inputs();
  zero_grad_at(Place::kBeforeForward);
  begin_part("## forward ##");
  TensorRef made = parts.forward();
  if (late_loss) {
    end_part();
    begin_part("## backward ##");
  }
  zero_grad_at(Place::kBeforeLoss);
  if (parts.loss) made = parts.loss(made);
  if (!late_loss) end_part();
  if (training()) {
    if (!late_loss) begin_part("## backward ##");
    zero_grad_at(Place::kBeforeBackward);
    tape_.run(made);
    end_part();
    optimizer_step();
    if (parts.behind_optimizer) parts.behind_optimizer();
  } else if (late_loss) {
    end_part();
  }
  if (!options_.step_label.empty()) graph_.end_op();
  return graph_.finish();
}

void TrainingStep::begin_part(std::string_view region) {
  if (options_.regions != TrainingOptions::Regions::kOff) begin_region(graph_, region);
}

void TrainingStep::end_part() {
  if (options_.regions != TrainingOptions::Regions::kOff) graph_.end_op();
}

void TrainingStep::zero_grad_at(TrainingOptions::ZeroGradPlace place) {
  if (training() && place == options_.zero_grad_place) zero_grad();
}

void TrainingStep::zero_grad() {
  if (options_.optimizer == TrainingOptions::Optimizer::kNoOptimizer) return;
  begin_region(graph_, fmt::format("Optimizer.zero_grad#{0}.zero_grad",
                                   optimizer_class(options_.optimizer)));
  zero_gradients(graph_, options_.implementation, kept_gradients_, tape_.sequence());
  graph_.end_op();
}

void TrainingStep::optimizer_step() {
  if (options_.optimizer == TrainingOptions::Optimizer::kNoOptimizer) return;
  OptimizerSettings settings = optimizer_settings(options_.optimizer, options_.implementation);
  settings.learning_rate = options_.learning_rate.value_or(settings.learning_rate);
  settings.weight_decay = options_.weight_decay.value_or(settings.weight_decay);
  std::vector<ParameterUpdate> updates;
  for (TensorRef parameter : parameters_) {
    updates.push_back({.parameter = parameter, .gradient = tape_.gradient(parameter)});
  }
  begin_part("## optimizer ##");
  begin_region(graph_, fmt::format("Optimizer.step#{0}.step", optimizer_class(options_.optimizer)));
  emit_optimizer(graph_, settings, std::move(updates));
  graph_.end_op();
  end_part();
}

}  // namespace perfmodel
