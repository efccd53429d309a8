#include "parameter_gradients.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

class ParameterGradientFinder {
 public:
  explicit ParameterGradientFinder(const ExecutionGraph& graph)
      : graph_(graph), found_(graph.nodes.size()), checkpoint_(graph.nodes.size(), -1) {}

  std::vector<bool> find() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const std::string_view name = graph_.name(node);
      const std::int32_t around = node.parent >= 0 ? checkpoint_[node.parent] : -1;
      const bool backward = node.scope == Scope::kBackward;
      checkpoint_[i] =
          backward && name == "CheckpointFunctionBackward" ? static_cast<std::int32_t>(i) : around;
      if (backward && name == "torch::autograd::AccumulateGrad") {
        found_[i] = true;
        if (around >= 0) keep(node, i);
      } else if (!kept_.empty() && (backward || is_sum(name))) {
        hand_on(node, around);
      }
    }
    return std::move(found_);
  }

 private:
  struct Kept {
    std::size_t node = 0;          // its AccumulateGrad
    std::int32_t checkpoint = -1;  // around it
  };

  void keep(const Node& node, std::size_t index) {
    const std::int32_t around = checkpoint_[node.parent];
    for (std::int32_t child : graph_.children(node)) {
      const Node& op = graph_.node(child);
      for_each_tensor(graph_, graph_.outputs(op), [&](const Tensor& tensor) {
        kept_[tensor.id] = {.node = index, .checkpoint = around};
      });
    }
  }

  // Gradients of parameters are not taken by functions.
  void hand_on(const Node& node, std::int32_t around) {
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      const auto at = kept_.find(tensor.id);
      if (at == kept_.end() || at->second.checkpoint == around) return;
      found_[at->second.node] = false;
      kept_.erase(at);
    });
  }

  const ExecutionGraph& graph_;
  std::vector<bool> found_;
  std::vector<std::int32_t> checkpoint_;         // innermost one around each node, itself included
  std::unordered_map<std::int64_t, Kept> kept_;  // by the tensor's id
};

}  // namespace

std::vector<bool> parameter_gradients(const ExecutionGraph& graph) {
  return ParameterGradientFinder(graph).find();
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
