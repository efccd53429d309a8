#include "optimizer_writer.hpp"

#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"

namespace perfmodel {
namespace {

using Implementation = TrainingOptions::Implementation;

class StepWriter {
 public:
  StepWriter(GraphCopy& copy, const ReadStep& step, const FactsOfValues<TensorRef>* others)
      : copy_(copy), graph_(copy.builder()), step_(step), others_(others) {}

  // Neighbouring groups of equal settings become one, as PyTorch has one list per parameter group.
  void write() {
    for (const std::int32_t op : step_.first) copy_.copy_tree(op);
    copy_.close_to(step_.label);
    for (const ReadGroup& group : step_.groups) {
      if (!(group.settings == settings_)) write_updates();
      settings_ = group.settings;
      for (const ReadUpdate& update : group.updates) {
        if (!update.sparse) {
          add(update);
          continue;
        }
        write_updates();
        copy_.copy_tree(update.last_op);
        copy_.close_to(step_.label);
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

  // What a parameter or a gradient has become.
  TensorRef changed(std::int64_t index) {
    const TensorRef other = others_ ? (*others_)[copy_.source().tensors[index]] : TensorRef{};
    return other.exists() ? other : tensor(index);
  }

  void add(const ReadUpdate& update) {
    const TensorRef parameter = changed(update.parameter), gradient = changed(update.gradient);
    const DType from = graph_.dtype(gradient), to = graph_.dtype(parameter);
    const bool is_cast = from != to && is_floating_point(from) && is_floating_point(to);
    updates_.push_back({.parameter = parameter,
                        .gradient = is_cast ? to_dtype(graph_, gradient, to) : gradient,
                        .step = tensor(update.step),
                        .first = tensor(update.first),
                        .second = tensor(update.second),
                        .first_scale = tensor(update.first_scale),
                        .second_scale = tensor(update.second_scale)});
    if (update.weight >= 0) masters_.emplace_back(tensor(update.weight), parameter);
  }

  GraphCopy& copy_;
  GraphBuilder& graph_;
  const ReadStep& step_;
  const FactsOfValues<TensorRef>* others_;
  OptimizerSettings settings_;  // of the updates at hand
  std::vector<ParameterUpdate> updates_;
  std::vector<std::pair<TensorRef, TensorRef>> masters_;  // weight, its copy
};

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

}  // namespace

// State stays with its kind, in 8 bits with its own; counters of fused steps are on the GPU, others
// on the CPU.
ReadStep rewritten_step(ReadStep step, const OptimizerRewrite& rewrite, const PyTorch& pytorch) {
  for (ReadGroup& group : step.groups) {
    const OptimizerSettings from =
        std::exchange(group.settings, rewritten_settings(group.settings, rewrite, pytorch));
    const auto changes = [&](Implementation how) {
      return (from.implementation == how) != (group.settings.implementation == how);
    };
    const bool has_other_state =
        from.optimizer != group.settings.optimizer || changes(Implementation::kEightBit);
    for (ReadUpdate& update : group.updates) {
      if (has_other_state || changes(Implementation::kFused)) update.step = -1;
      if (has_other_state) {
        update.first = update.second = update.first_scale = update.second_scale = -1;
      }
    }
  }
  return step;
}

void write_optimizer_step(GraphCopy& copy, const ReadStep& step,
                          const FactsOfValues<TensorRef>* others) {
  StepWriter(copy, step, others).write();
}

}  // namespace perfmodel
