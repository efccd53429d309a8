#include "losses.hpp"

#include <optional>
#include <span>

namespace perfmodel {
namespace {

std::optional<std::uint32_t> first_tensor(std::span<const Argument> arguments) {
  if (arguments.empty() || arguments[0].kind != Argument::Kind::kTensor) return std::nullopt;
  return arguments[0].index;
}

}  // namespace

std::vector<Loss> losses(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  const BackwardPass& pass = step.backward();
  std::vector<bool> is_fed(pass.functions.size());
  for (const GradientEdge& edge : pass.edges) is_fed[edge.to] = true;
  std::vector<Loss> found;
  for (std::size_t f = 0; f < pass.functions.size(); ++f) {
    const BackwardFunction& function = pass.functions[f];
    const auto gradient = first_tensor(graph.inputs(function.function));
    if (is_fed[f] || function.accumulates() || !gradient) continue;
    const std::int32_t maker = step.tensors().maker(step.tensors().of(graph.tensors[*gradient]));
    if (maker < 0 || pass.in_backward[maker] || graph.name(maker) != "aten::ones_like") continue;
    const auto loss = first_tensor(graph.inputs(maker));
    if (loss) found.push_back({*loss, *gradient, maker, function});
  }
  return found;
}

}  // namespace perfmodel
