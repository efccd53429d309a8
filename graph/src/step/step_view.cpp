#include "step_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "autograd_names.hpp"
#include "dialect.hpp"
#include "nesting.hpp"
#include "offload_ops.hpp"
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
                                         "(node {}): offload-activations comes after this",
                                         name, node.id));
    }
    const bool checkpoint = name == "CheckpointFunction" || name == kCheckpointBackward;
    if (needs.no_checkpoints && checkpoint) {
      return refuse(rewrite,
                    fmt::format("a graph without checkpoints, found {} (node {})", name, node.id));
    }
    if (needs.eager && name == "CompiledFunction") {
      return refuse(rewrite,
                    fmt::format("a program that is not compiled, found {} (node {}){}", name,
                                node.id, rewrite == "compile" ? "" : ": compile comes after this"));
    }
    if (!needs.no_collectives || node.comm < 0) continue;
    const std::string& kind = graph.comm_records[node.comm].collective;
    if (kind == "init" || kind == "end") continue;
    return refuse(rewrite,
                  fmt::format("a graph without collectives, found {} (node {}){}", kind, node.id,
                              rewrite.ends_with("-parallel")
                                  ? ""
                                  : ": data-parallel and tensor-parallel come after this"));
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

Result<OptimizerSteps> read_optimizer_steps(const ExecutionGraph& graph) {
  OptimizerSteps steps;
  for (const std::int32_t label : optimizer_steps(graph)) {
    PERFMODEL_TRY(step, read_optimizer_step(graph, label));
    steps.emplace(label, std::move(*step));
  }
  return steps;
}

}  // namespace

GraphIteration first_step(const ExecutionGraph& graph) {
  std::vector<GraphIteration> steps = iterations(graph);
  return steps.empty() ? GraphIteration{} : std::move(steps.front());
}

const ExecutionGraph& StepView::graph() const {
  if (!std::exchange(has_versions_, true)) renamed_ = without_reused_ids(recorded_, end_);
  return renamed_ ? *renamed_ : recorded_;
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

const ForwardFlow& StepView::forward() const {
  return found_once(forward_, [&] { return ForwardFlow(graph(), tensors(), backward()); });
}

const Result<OptimizerSteps>& StepView::optimizers() const {
  return found_once(optimizers_, [&] { return read_optimizer_steps(graph()); });
}

const PyTorch& StepView::dialect() const {
  return found_once(dialect_, [&] { return dialect_of(graph()); });
}

Result<void> StepView::check(std::string_view rewrite, const StepNeeds& needs) const {
  if (needs.nested) {
    if (auto good = check_nesting(recorded_); !good) return good;
  }
  if (auto good = check_ops(recorded_, rewrite, needs); !good) return good;
  if (needs.backward) {
    if (auto good = check_one_step(recorded_, rewrite); !good) return good;
  }
  const std::int64_t passes = needs.backward || needs.one_pass ? accumulated_passes() : 1;
  if (passes == 1) return {};
  return refuse(
      rewrite,
      fmt::format("one backward pass per step, found gradients of {}: accumulate comes after this",
                  passes));
}

}  // namespace perfmodel
