#include "optimizer_writer.hpp"

#include <utility>
#include <vector>

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
  StepWriter(GraphCopy& copy, const ReadStep& step) : copy_(copy), step_(step) {}

  // Groups that are alike now become one, as PyTorch has one list per parameter group.
  void write(const OptimizerRewrite& rewrite) {
    for (std::int32_t op : step_.first) copy_.copy_tree(op);
    copy_.close_to(step_.label);
    OptimizerSettings settings;
    std::vector<ParameterUpdate> updates;
    for (const ReadGroup& group : step_.groups) {
      const OptimizerSettings next =
          rewritten_settings(group.settings, rewrite, copy_.builder().pytorch());
      if (!(next == settings)) {
        emit_optimizer(copy_.builder(), settings, std::exchange(updates, {}));
        settings = next;
      }
      for (const ReadUpdate& update : group.updates) {
        if (update.sparse) {  // stays as it is
          emit_optimizer(copy_.builder(), settings, std::exchange(updates, {}));
          copy_.copy_tree(update.last_op);
          copy_.close_to(step_.label);
        } else {
          updates.push_back(converted(update, group.settings, settings));
        }
      }
    }
    emit_optimizer(copy_.builder(), settings, std::move(updates));
  }

 private:
  TensorRef tensor(std::int64_t index) {
    if (index < 0) return {};
    return copy_.builder().tensor_of_source(static_cast<std::uint32_t>(index));
  }

  // State stays with its kind; counters of fused steps lie on the GPU, others on the CPU.
  ParameterUpdate converted(const ReadUpdate& update, const OptimizerSettings& from,
                            const OptimizerSettings& to) {
    ParameterUpdate made{.parameter = tensor(update.parameter),
                         .gradient = tensor(update.gradient)};
    if (from.optimizer != to.optimizer) return made;
    const auto fused = Implementation::kFused;
    if ((from.implementation == fused) == (to.implementation == fused)) {
      made.step = tensor(update.step);
    }
    made.first = tensor(update.first);
    made.second = tensor(update.second);
    return made;
  }

  GraphCopy& copy_;
  const ReadStep& step_;
};

}  // namespace

void write_optimizer_step(GraphCopy& copy, const ReadStep& step, const OptimizerRewrite& rewrite) {
  StepWriter(copy, step).write(rewrite);
}

}  // namespace perfmodel
