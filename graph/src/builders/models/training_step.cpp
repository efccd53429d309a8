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
  constexpr std::uint64_t kParameter = 700;  // bytes, with its name and its place in the tape
  // Each has a node at least, and is made before all nodes.
  growth_point(parameters_.size(), kParameter * parameters_.size());
  const bool apart = sparse_gradient && sparse_optimizer_;
  TensorRef kept;
  if (!options_.zero_grad_to_none()) {
    kept = graph_.new_tensor(graph_.dtype(made), graph_.shape(made));
    if (sparse_gradient) {
      const TensorRef indices = graph_.new_tensor(DType::kInt64, {1, 0});
      kept = graph_.new_sparse(graph_.shape(made), indices, kept);
    }
    (apart ? kept_sparse_gradients_ : kept_gradients_).push_back(kept);
  }
  tape_.add_parameter(made, kept);
  (apart ? sparse_parameters_ : parameters_).push_back(made);
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
    optimize();
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
  zero_grad_of(options_.optimizer, kept_gradients_);
  if (sparse_optimizer_) zero_grad_of(*sparse_optimizer_, kept_sparse_gradients_);
}

void TrainingStep::zero_grad_of(TrainingOptions::Optimizer optimizer,
                                const std::vector<TensorRef>& kept) {
  if (optimizer == TrainingOptions::Optimizer::kNoOptimizer) return;
  begin_region(graph_,
               fmt::format("Optimizer.zero_grad#{0}.zero_grad", optimizer_class(optimizer)));
  zero_gradients(graph_, options_.implementation, kept, tape_.sequence());
  graph_.end_op();
}

void TrainingStep::optimize() {
  using enum TrainingOptions::Optimizer;
  if (options_.optimizer == kNoOptimizer && !sparse_optimizer_) return;
  begin_part("## optimizer ##");
  if (options_.optimizer != kNoOptimizer) optimizer_step(options_.optimizer, parameters_);
  if (sparse_optimizer_) optimizer_step(*sparse_optimizer_, sparse_parameters_);
  end_part();
}

void TrainingStep::optimizer_step(TrainingOptions::Optimizer optimizer,
                                  const std::vector<TensorRef>& parameters) {
  OptimizerSettings settings = optimizer_settings(optimizer, options_.implementation);
  settings.learning_rate = options_.learning_rate.value_or(settings.learning_rate);
  settings.weight_decay = options_.weight_decay.value_or(settings.weight_decay);
  std::vector<ParameterUpdate> updates;
  for (TensorRef parameter : parameters) {
    updates.push_back({.parameter = parameter, .gradient = tape_.gradient(parameter)});
  }
  begin_region(graph_, fmt::format("Optimizer.step#{0}.step", optimizer_class(optimizer)));
  emit_optimizer(graph_, settings, std::move(updates));
  graph_.end_op();
}

}  // namespace perfmodel
