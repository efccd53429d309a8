#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/budget.hpp"
#include "builders/emit/autograd_tape.hpp"
#include "perfmodel/graph/detail/training_options.hpp"

namespace perfmodel {

/// The common part of all models: parameters, copies of the batch, zero_grad, backward pass,
/// optimizer. A model makes its parameters, then calls run() with functions that copy its inputs
/// and compute its loss.
class TrainingStep {
 public:
  /// `sparse_optimizer`: for parameters with sparse gradients; unset: the same as for all others.
  explicit TrainingStep(const TrainingOptions& options,
                        std::optional<TrainingOptions::Optimizer> sparse_optimizer = {})
      : options_(options), sparse_optimizer_(sparse_optimizer), graph_(options.pytorch) {}

  GraphBuilder& graph() { return graph_; }
  AutogradTape& tape() { return tape_; }
  const TrainingOptions& options() const { return options_; }

  /// A parameter of the type of the options; the optimizer walks them in the order in which they
  /// are made. Sparse gradient: for a table whose lookups touch few rows.
  TensorRef parameter(Shape shape, bool sparse_gradient = false);
  /// Parameters made from now on belong to a model that does not learn in this step: they have no
  /// gradient, and the optimizer does not see them.
  void freeze(bool frozen) { frozen_ = frozen; }
  /// Makes a parameter of a tensor that is there: a part of a larger allocation.
  TensorRef adopt_parameter(TensorRef made, bool sparse_gradient = false);
  /// Parameters that `sparse_optimizer` does not update.
  const std::vector<TensorRef>& parameters() const { return parameters_; }

  /// An input of the step: copied from host memory, or on a CPU there already.
  TensorRef input(DType dtype, Shape shape);

  /// The parts of a step in which zero_grad and regions have their places.
  struct Parts {
    std::function<void()> inputs;                   ///< may be left out
    std::function<TensorRef()> forward;             ///< the model; returns its prediction
    std::function<TensorRef(TensorRef)> loss = {};  ///< left out: the prediction is the loss
    std::function<void()> behind_optimizer = {};    ///< ends the step, in training only
  };
  ExecutionGraph run(const Parts& parts);
  /// The whole step; `loss` emits the forward pass (inputs too) and returns the loss.
  ExecutionGraph run(const std::function<TensorRef()>& loss) { return run({{}, loss}); }

 private:
  bool training() const { return options_.phase == TrainingOptions::Phase::kTraining; }
  void zero_grad_at(TrainingOptions::ZeroGradPlace place);
  void begin_part(std::string_view region);
  void end_part();
  void zero_grad();
  void zero_grad_of(TrainingOptions::Optimizer optimizer, const std::vector<TensorRef>& kept);
  void optimize();
  void optimizer_step(TrainingOptions::Optimizer optimizer,
                      const std::vector<TensorRef>& parameters);

  TrainingOptions options_;
  std::optional<TrainingOptions::Optimizer> sparse_optimizer_;
  GraphBuilder graph_;
  AutogradTape tape_{graph_};
  bool frozen_ = false;
  std::vector<TensorRef> parameters_, sparse_parameters_;          // per optimizer
  std::vector<TensorRef> kept_gradients_, kept_sparse_gradients_;  // if zero_grad clears them
};

}  // namespace perfmodel
