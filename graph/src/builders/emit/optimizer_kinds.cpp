#include "optimizer_kinds.hpp"

#include "foreach.hpp"
#include "update.hpp"

namespace perfmodel {

std::vector<TensorRef> listed(const std::vector<ParameterUpdate>& updates,
                              TensorRef ParameterUpdate::*field) {
  std::vector<TensorRef> list;
  list.reserve(updates.size());
  for (const ParameterUpdate& update : updates) list.push_back(update.*field);
  return list;
}

// PyTorch 2 adds a tensor to counters on the CPU, so that not every one wraps the number anew.
void foreach_count(GraphBuilder& graph, const std::vector<TensorRef>& steps) {
  const bool on_cpu = !steps.empty() && graph.device(steps.front()) == GraphBuilder::cpu();
  if (on_cpu && !graph.pytorch().before(2, 0)) {
    foreach_add_tensor_(graph, steps, cpu_number(graph));
  } else {
    foreach_add_number_(graph, steps, 1);
  }
}

std::vector<TensorRef> foreach_decayed(GraphBuilder& graph, const OptimizerSettings& settings,
                                       const std::vector<TensorRef>& parameters,
                                       const std::vector<TensorRef>& gradients) {
  if (!graph.pytorch().before(2, 0)) {
    return foreach_add(graph, gradients, parameters, settings.weight_decay);
  }
  foreach_add_(graph, gradients, parameters, settings.weight_decay);
  return gradients;
}

}  // namespace perfmodel
