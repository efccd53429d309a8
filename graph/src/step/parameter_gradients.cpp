#include "parameter_gradients.hpp"

#include <algorithm>
#include <vector>

#include "autograd_names.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "step_view.hpp"
#include "tree_walk.hpp"

namespace perfmodel {
namespace {

// The innermost backward function of a checkpoint around a node; -1: none.
std::int32_t checkpoint_around(const ExecutionGraph& graph, std::int32_t node) {
  const auto is_checkpoint = [&](std::int32_t i) {
    return graph.node(i).scope == Scope::kBackward && graph.name(i) == kCheckpointBackward;
  };
  while (node >= 0 && !is_checkpoint(node)) node = parent_before(graph, node);
  return node;
}

// The engine adds gradients that meet; a loop of SGD adds them to parameters, too.
bool is_sum_of_engine(const ExecutionGraph& graph, const Node& node) {
  return is_sum(graph.name(node)) && node.parent >= 0 &&
         is_evaluate_function(graph, graph.node(node.parent));
}

// Functions do not take gradients of parameters.
bool is_handed_on(const StepView& step, std::int32_t accumulate, std::int32_t checkpoint) {
  const ExecutionGraph& graph = step.graph();
  const auto hands_on = [&](std::int32_t reader) {
    const Node& node = graph.node(reader);
    const bool passes_gradients = node.scope == Scope::kBackward || is_sum_of_engine(graph, node);
    return reader > accumulate && passes_gradients &&
           checkpoint_around(graph, reader) != checkpoint;
  };
  bool found = false;
  for (const std::int32_t child : graph.children(accumulate)) {
    for_each_tensor(graph, graph.outputs(child), [&](const Tensor& kept) {
      const Values& tensors = step.tensors();
      found |= std::ranges::any_of(tensors.readers(tensors.of(kept)), hands_on);
    });
  }
  return found;
}

}  // namespace

const std::vector<bool>& StepView::parameter_gradients() const {
  const auto is_of_parameter = [&](std::int32_t i) {
    if (recorded_.node(i).scope != Scope::kBackward || recorded_.name(i) != kAccumulate)
      return false;
    const std::int32_t checkpoint = checkpoint_around(recorded_, i);
    return checkpoint < 0 || !is_handed_on(*this, i, checkpoint);
  };
  return found_once(parameter_gradients_, [&] {
    std::vector<bool> found;
    const auto count = static_cast<std::int32_t>(recorded_.nodes.size());
    for (std::int32_t i = 0; i < count; ++i) found.push_back(is_of_parameter(i));
    return found;
  });
}

std::int64_t StepView::accumulated_passes() const {
  std::vector<std::int32_t> accumulations;
  bool any_adds = false;
  const GraphIteration window = first_step(recorded_);
  for (std::int32_t i = window.begin; i < window.end; ++i) {
    if (!parameter_gradients()[i]) continue;
    accumulations.push_back(i);
    any_adds |= adds_to_gradient(recorded_, recorded_.node(i));
  }
  std::int64_t most = 1;
  if (!any_adds) return most;
  FactsOfValues<std::int64_t> passes(tensors());
  for (const std::int32_t i : accumulations) {
    const auto kept = kept_gradient(graph(), graph().node(i));
    if (!kept || graph().tensors[*kept].dtype == DType::kUnknown) continue;
    std::int64_t& of_gradient = passes[graph().tensors[*kept]];
    of_gradient = adds_to_gradient(graph(), graph().node(i)) ? of_gradient + 1 : 1;
    most = std::max(most, of_gradient);
  }
  return most;
}

std::int64_t accumulated_passes(const ExecutionGraph& graph) {
  return StepView(graph).accumulated_passes();
}

std::optional<std::uint32_t> kept_gradient(const ExecutionGraph& graph, const Node& accumulate) {
  std::optional<std::uint32_t> kept;
  for (const Argument& argument : graph.inputs(accumulate)) {
    if (argument.kind == Argument::Kind::kTensor) kept = argument.index;
  }
  for (const std::int32_t child : graph.children(accumulate)) {
    const auto outputs = graph.outputs(child);
    if (!outputs.empty() && outputs[0].kind == Argument::Kind::kTensor) kept = outputs[0].index;
  }
  return kept;
}

bool adds_to_gradient(const ExecutionGraph& graph, const Node& accumulate) {
  return std::ranges::any_of(graph.children(accumulate),
                             [&](std::int32_t child) { return is_sum(graph.name(child)); });
}

}  // namespace perfmodel
