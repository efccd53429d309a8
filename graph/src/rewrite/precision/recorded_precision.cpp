#include "recorded_precision.hpp"

#include <algorithm>

#include "ops/catalogue.hpp"
#include "step/optimizer_reader.hpp"

namespace perfmodel {
namespace {

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

bool has_fp32_weights(const StepView& step) {
  const auto& steps = step.optimizers();
  return steps && !updates_of(*steps).empty() && !has_half_weights(step, DType::kBFloat16) &&
         !has_half_weights(step, DType::kFloat16);
}

}  // namespace

DType half_of(const ExecutionGraph& graph, const Node& node) {
  DType found = DType::kUnknown;
  for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
    if (is_half(tensor.dtype)) found = tensor.dtype;
  });
  return found;
}

bool has_half_products(const ExecutionGraph& graph) {
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    return autocast_policy(graph.name(node), true) == AutocastPolicy::kLower &&
           half_of(graph, node) != DType::kUnknown;
  });
}

bool has_half_weights(const StepView& step, DType half) {
  const auto& steps = step.optimizers();
  return steps && std::ranges::any_of(updates_of(*steps), [&](const ReadUpdate& update) {
           const std::int64_t weight = update.weight >= 0 ? update.weight : update.parameter;
           return step.graph().tensors[weight].dtype == half;
         });
}

std::vector<bool> autocast_region(const ExecutionGraph& graph, const BackwardPass& pass,
                                  bool on_gpu) {
  std::vector<bool> region(graph.nodes.size());
  for (const GraphIteration& step : iterations(graph)) {
    for (std::int32_t i = step.begin; i < step.end; ++i) {
      const Node& node = graph.nodes[i];
      if (pass.in_backward[i]) break;  // the optimizer follows
      bool here = false;
      for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
        here |= on_gpu ? tensor.on_gpu() : tensor.on_cpu();
      });
      region[i] = here && !node.is_label && !is_under_optimizer(graph, i);
    }
  }
  return region;
}

std::set<std::string_view> ops_that_cpus_keep_narrow(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  std::set<std::string_view> found;
  if (!has_half_products(graph) || !has_fp32_weights(step)) return found;
  const std::vector<bool> region = autocast_region(graph, step.backward(), false);
  for (std::int32_t i = 0; i < std::ssize(graph.nodes); ++i) {
    const Node& node = graph.nodes[i];
    if (!region[i] || half_of(graph, node) == DType::kUnknown) continue;
    const AutocastPolicy policy = autocast_policy(graph.name(i), true);
    // Autocast does not see the sums that other ops call, nor changes a type that a caller names.
    const bool is_called = node.parent < 0 || !region[node.parent];
    bool gives_half = false;
    for_each_tensor(graph, graph.outputs(node),
                    [&](const Tensor& made) { gives_half |= is_half(made.dtype); });
    if (policy == AutocastPolicy::kFp32 ||
        (policy == AutocastPolicy::kFp32Type && is_called && gives_half)) {
      found.insert(graph.name(i));
    }
  }
  return found;
}

}  // namespace perfmodel
