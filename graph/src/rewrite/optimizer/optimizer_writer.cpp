#include "optimizer_writer.hpp"

#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"

namespace perfmodel {

using Implementation = TrainingOptions::Implementation;

OptimizerSettings rewritten_settings(const OptimizerSettings& from, const OptimizerRewrite& rewrite,
                                     const PyTorch& pytorch) {
  OptimizerSettings settings = from;
  if (rewrite.optimizer && *rewrite.optimizer != from.optimizer) {
    settings = optimizer_settings(*rewrite.optimizer, from.implementation);
    settings.steps = from.steps;
  }
  if (rewrite.implementation) settings.implementation = resolved(*rewrite.implementation, pytorch);
  return settings;
}

namespace {

class StepWriter {
 public:
  StepWriter(GraphCopy& copy, const ReadStep& step, const OtherGradients& gradients)
      : copy_(copy), graph_(copy.builder()), step_(step), gradients_(gradients) {}

  // Groups that are alike now become one, as PyTorch has one list per parameter group.
  void write(const OptimizerRewrite& rewrite) {
    for (std::int32_t op : step_.first) copy_.copy_tree(op);
    copy_.close_to(step_.label);
    for (const ReadGroup& group : step_.groups) {
      const OptimizerSettings next = rewritten_settings(group.settings, rewrite, graph_.pytorch());
      if (!(next == settings_)) {
        write_updates();
        settings_ = next;
      }
      for (const ReadUpdate& update : group.updates) {
        if (update.sparse) {  // stays as it is
          write_updates();
          copy_.copy_tree(update.last_op);
          copy_.close_to(step_.label);
        } else {
          updates_.push_back(converted(update, group.settings));
        }
      }
    }
    write_updates();
  }

 private:
  void write_updates() {
    emit_optimizer(graph_, settings_, std::exchange(updates_, {}));
    for (const auto& [weight, master] : std::exchange(masters_, {})) {
      perfmodel::copy(graph_, weight, master);
    }
  }

  TensorRef tensor(std::int64_t index) {
    if (index < 0) return {};
    return graph_.tensor_of_source(static_cast<std::uint32_t>(index));
  }

  TensorRef gradient_of(const ReadUpdate& update, TensorRef parameter) {
    const auto other = gradients_.find(update.gradient);
    const TensorRef gradient = other == gradients_.end() ? tensor(update.gradient) : other->second;
    const DType from = graph_.dtype(gradient), to = graph_.dtype(parameter);
    const bool is_cast = from != to && is_floating_point(from) && is_floating_point(to);
    return is_cast ? to_dtype(graph_, gradient, to) : gradient;
  }

  // State stays with its kind, that in 8 bits with its own; counters of fused steps lie on the GPU,
  // others on the CPU.
  ParameterUpdate converted(const ReadUpdate& update, const OptimizerSettings& from) {
    const TensorRef parameter = tensor(update.parameter);
    if (update.weight >= 0) masters_.emplace_back(tensor(update.weight), parameter);
    ParameterUpdate made{.parameter = parameter, .gradient = gradient_of(update, parameter)};
    const auto changes = [&](Implementation how) {
      return (from.implementation == how) != (settings_.implementation == how);
    };
    if (from.optimizer != settings_.optimizer || changes(Implementation::kEightBit)) return made;
    if (!changes(Implementation::kFused)) made.step = tensor(update.step);
    made.first = tensor(update.first);
    made.second = tensor(update.second);
    made.first_scale = tensor(update.first_scale);
    made.second_scale = tensor(update.second_scale);
    return made;
  }

  GraphCopy& copy_;
  GraphBuilder& graph_;
  const ReadStep& step_;
  const OtherGradients& gradients_;
  OptimizerSettings settings_;  // of the updates at hand
  std::vector<ParameterUpdate> updates_;
  std::vector<std::pair<TensorRef, TensorRef>> masters_;  // weight, its copy
};

}  // namespace

void write_optimizer_step(GraphCopy& copy, const ReadStep& step, const OptimizerRewrite& rewrite,
                          const OtherGradients& gradients) {
  StepWriter(copy, step, gradients).write(rewrite);
}

}  // namespace perfmodel
