#include <algorithm>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

bool is_image(const ExecutionGraph& graph, const Tensor& tensor) {
  const auto shape = graph.shape(tensor);
  if (tensor.rank < 4 || shape[1] <= 1) return false;
  return std::any_of(shape.begin() + 2, shape.end(), [](std::int64_t size) { return size > 1; });
}

}  // namespace

Result<ExecutionGraph> rewrite_channels_last(const ExecutionGraph& source) {
  const StepView step(source);
  const ExecutionGraph& graph = step.graph();
  ExecutionGraph changed = graph;
  FactsOfValues<std::uint8_t> is_channels_last(step.tensors());
  bool any = false;
  for (const Node& node : graph.nodes) {
    bool applies = is_convolution(graph.name(node));
    any |= applies;
    for_each_tensor(graph, graph.inputs(node),
                    [&](const Tensor& tensor) { applies |= is_channels_last[tensor]; });
    if (!applies && is_empty(graph.name(node))) continue;  // the op around it knows
    for (const auto arguments : {graph.inputs(node), graph.outputs(node)}) {
      for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
        if (!is_image(graph, tensor)) return;
        is_channels_last[tensor] = applies;
        if (applies) changed.tensors[&tensor - graph.tensors.data()].is_channels_last = true;
      });
    }
  }
  if (any) return changed;
  return fail(ErrorCode::kImpossible, "expected a convolution to lay out images for, found none");
}

}  // namespace perfmodel
