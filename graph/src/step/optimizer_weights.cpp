#include "optimizer_weights.hpp"

#include "optimizer_reader.hpp"

namespace perfmodel {

FactsOfValues<std::int64_t> weights_by_gradient(const StepView& view) {
  const ExecutionGraph& graph = view.graph();
  FactsOfValues<std::int64_t> weights(view.tensors(), -1);
  for (const std::int32_t label : optimizer_steps(graph)) {
    const auto step = read_optimizer_step(graph, label);
    if (!step) continue;
    for (const ReadGroup& group : step->groups) {
      for (const ReadUpdate& update : group.updates) {
        weights[graph.tensors[update.gradient]] =
            update.weight >= 0 ? update.weight : update.parameter;
      }
    }
  }
  return weights;
}

}  // namespace perfmodel
