#include "step_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "autograd_names.hpp"
#include "core/parameter_gradients.hpp"
#include "nesting.hpp"
#include "offload_ops.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "unique_ids.hpp"

namespace perfmodel {
namespace {

Unexpected refuse(std::string_view rewrite, std::string reason) {
  return fail(ErrorCode::kImpossible, fmt::format("{}: expected {}", rewrite, reason));
}

Result<void> check_ops(const ExecutionGraph& graph, std::string_view rewrite,
                       const StepNeeds& needs) {
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (needs.no_offload && name.starts_with(kOffloadOps)) {
      return refuse(rewrite, fmt::format("a graph whose activations stay on the GPU, found {} "
                                         "(node {}): offload-activations comes behind this",
                                         name, node.id));
    }
    const bool checkpoint = name == "CheckpointFunction" || name == kCheckpointBackward;
    if (needs.no_checkpoints && checkpoint) {
      return refuse(rewrite,
                    fmt::format("a graph without checkpoints, found {} (node {})", name, node.id));
    }
    if (!needs.no_collectives || node.comm < 0) continue;
    const std::string& kind = graph.comm_records[node.comm].collective;
    if (kind == "init" || kind == "end") continue;
    return refuse(rewrite,
                  fmt::format("a graph without collectives, found {} (node {}){}", kind, node.id,
                              rewrite.ends_with("-parallel")
                                  ? ""
                                  : ": data-parallel and tensor-parallel come behind this"));
  }
  return {};
}

bool is_function(const Node& node) { return node.scope == Scope::kBackward; }

Result<void> check_one_step(const ExecutionGraph& graph, std::string_view rewrite) {
  if (std::ranges::none_of(graph.nodes, is_function)) {
    return refuse(rewrite, "a backward pass, found none");
  }
  const auto steps = std::ranges::count_if(iterations(graph), [&](const GraphIteration& step) {
    return std::any_of(graph.nodes.begin() + step.begin, graph.nodes.begin() + step.end,
                       is_function);
  });
  if (steps <= 1) return {};
  return refuse(
      rewrite,
      fmt::format("one training step, found {}: keep one with keep_subgraph() first", steps));
}

// What is asked for the first time is found now.
template <class Part, class Find>
const Part& found_once(std::optional<Part>& part, Find&& find) {
  if (!part) part.emplace(find());
  return *part;
}

}  // namespace

StepView::StepView(const ExecutionGraph& graph) : source_(graph) {
  if (!graph.built) renamed_ = with_unique_ids(graph);
}

const Values& StepView::tensors() const {
  return found_once(tensors_, [&] { return Values(graph()); });
}

const Values& StepView::storages() const {
  return found_once(storages_, [&] { return Values(graph(), &Tensor::storage_id); });
}

const BackwardPass& StepView::backward() const {
  return found_once(backward_, [&] { return backward_pass(graph()); });
}

const StorageLifetimes& StepView::lifetimes() const {
  return found_once(lifetimes_, [&] { return storage_lifetimes(graph()); });
}

const std::vector<bool>& StepView::parameter_gradients() const {
  return found_once(parameter_gradients_, [&] { return perfmodel::parameter_gradients(graph()); });
}

Result<std::map<std::int32_t, ReadStep>> StepView::optimizers() const {
  std::map<std::int32_t, ReadStep> steps;
  for (const std::int32_t label : optimizer_steps(graph())) {
    auto step = read_optimizer_step(graph(), label);
    if (!step) return Unexpected{step.error()};
    steps.emplace(label, std::move(*step));
  }
  return steps;
}

Result<void> check_graph(const ExecutionGraph& graph, std::string_view rewrite,
                         const StepNeeds& needs) {
  if (needs.nested) {
    if (auto good = check_nesting(graph); !good) return good;
  }
  if (auto good = check_ops(graph, rewrite, needs); !good) return good;
  if (needs.backward) {
    if (auto good = check_one_step(graph, rewrite); !good) return good;
  }
  const std::int64_t passes = needs.backward || needs.one_pass ? accumulated_passes(graph) : 1;
  if (passes == 1) return {};
  return refuse(
      rewrite,
      fmt::format("one backward pass per step, found gradients of {}: accumulate comes behind this",
                  passes));
}

std::int64_t accumulated_passes(const ExecutionGraph& graph) {
  const auto steps = iterations(graph);
  if (steps.empty()) return 1;
  const std::vector<bool> of_parameter = parameter_gradients(graph);
  std::unordered_map<std::int64_t, std::int64_t> times;  // by id of the gradient
  std::int64_t most = 1;
  for (std::int32_t i = steps.front().begin; i < steps.front().end; ++i) {
    if (!of_parameter[i]) continue;
    const auto kept = kept_gradient(graph, graph.nodes[i]);
    if (!kept || graph.tensors[*kept].dtype == DType::kUnknown) continue;
    std::int64_t& passes = times[graph.tensors[*kept].id];
    passes = adds_to_gradient(graph, graph.nodes[i]) ? passes + 1 : 1;
    most = std::max(most, passes);
  }
  return most;
}

}  // namespace perfmodel
