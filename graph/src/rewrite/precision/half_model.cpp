#include "half_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/catalogue.hpp"
#include "rewrite/graph_edit.hpp"
#include "rewrite/optimizer/optimizer_writer.hpp"

namespace perfmodel {
namespace {

Unexpected refuse_master_weights(std::string_view why) {
  return fail(ErrorCode::kImpossible, fmt::format("precision: expected {}", why));
}

/// Statistics of norms and log-sum-exps of attention stay fp32 even if the inputs are half. So do
/// all tensors of a batch norm except its input and result (Apex: keep_batchnorm_fp32), with the
/// gradients that AccumulateGrad keeps of its parameters.
FactsOfValues<bool> tensors_left_in_fp32(const StepView& step, const OptimizerSteps& steps) {
  const ExecutionGraph& graph = step.graph();
  FactsOfValues<bool> stay(step.tensors());
  const auto leave = [&](std::span<const Argument> arguments, std::size_t first) {
    if (first >= arguments.size()) return;
    for_each_tensor(graph, arguments.subspan(first),
                    [&](const Tensor& tensor) { stay[tensor] = true; });
  };
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    const Op* op = find_op(name);
    if (op == nullptr || (op->kind != OpKind::kNorm && op->kind != OpKind::kAttention)) continue;
    const bool backward = name.ends_with("_backward");
    const bool is_batch_norm = name.find("batch_norm") != std::string_view::npos;
    if (is_batch_norm) leave(graph.inputs(node), backward ? 2 : 1);
    if (is_batch_norm || !backward) leave(graph.outputs(node), 1);
  }
  for (const ReadUpdate& update : updates_of(steps)) {
    if (stay[graph.tensors[update.parameter]]) stay[graph.tensors[update.gradient]] = true;
  }
  return stay;
}

/// Makes fp32 tensors on the GPU half, except tensors_left_in_fp32(). Of the tensors that
/// optimizers mention, it changes only weights and their gradients.
void lower_tensors(const StepView& step, DType half, const OptimizerSteps& steps,
                   ExecutionGraph& made) {
  const ExecutionGraph& graph = step.graph();
  const FactsOfValues<bool> stay = tensors_left_in_fp32(step, steps);
  const auto lower_mention = [&](const Tensor& tensor) {
    if (tensor.dtype != DType::kFloat32 || !tensor.on_gpu() || stay[tensor]) return;
    Tensor& changed = made.tensors[&tensor - graph.tensors.data()];
    changed.dtype = half;
    changed.item_size = 2;
  };
  std::vector<bool> in_step(graph.nodes.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const std::int32_t parent = graph.node(i).parent;
    in_step[i] = steps.contains(i) || (parent >= 0 && in_step[parent]);
    if (in_step[i]) continue;
    for_each_tensor(graph, graph.inputs(i), lower_mention);
    for_each_tensor(graph, graph.outputs(i), lower_mention);
  }
  for (const ReadUpdate& update : updates_of(steps)) {
    lower_mention(graph.tensors[update.parameter]);
    lower_mention(graph.tensors[update.gradient]);
  }
}

Result<OptimizerSteps> read_dense_steps(const StepView& step) {
  const auto& steps = step.optimizers();
  if (steps && std::ranges::any_of(updates_of(*steps), &ReadUpdate::sparse)) {
    return refuse_master_weights("dense gradients for master weights, found a sparse one");
  }
  return steps;
}

/// Steps that update fp32 copies of the weights that are not fp32.
ExecutionGraph with_master_steps(const StepView& step, OptimizerSteps steps, GraphEdit& edit) {
  FactsOfValues<TensorRef> masters(step.tensors());
  for (ReadUpdate& update : updates_of(steps)) {
    const Tensor& weight = step.graph().tensors[update.parameter];
    if (edit.made().tensors[update.parameter].dtype == DType::kFloat32) continue;
    update.weight = update.parameter;
    if (masters[weight].exists()) continue;
    const auto shape = step.graph().shape(weight);
    masters[weight] = edit.builder().new_tensor(DType::kFloat32, {shape.begin(), shape.end()});
  }
  for (const auto& [label, one] : steps) {
    edit.refill(label, [&, &one = one] { write_optimizer_step(edit.copy(), one, &masters); });
  }
  return edit.write();
}

}  // namespace

Result<ExecutionGraph> half_model(const StepView& step, DType half) {
  PERFMODEL_TRY(steps, read_dense_steps(step));
  GraphEdit edit(step.graph(), step.dialect());
  lower_tensors(step, half, *steps, edit.made());
  return with_master_steps(step, *steps, edit);
}

Result<ExecutionGraph> with_fp32_copies(const StepView& step, DType half) {
  PERFMODEL_TRY(steps, read_dense_steps(step));
  bool any = false;
  for (ReadUpdate& update : updates_of(*steps)) {
    if (update.weight >= 0) {
      return refuse_master_weights(
          fmt::format("an fp32 graph, or weights in {} that the optimizer changes itself, found "
                      "fp32 copies",
                      to_string(half)));
    }
    any |= step.graph().tensors[update.parameter].dtype == half;
    update.first = update.second = update.first_scale = update.second_scale = -1;
  }
  if (!any) {
    return refuse_master_weights(
        fmt::format("an fp32 graph, or one with weights in {}, found neither", to_string(half)));
  }
  GraphEdit edit(step.graph(), step.dialect());
  return with_master_steps(step, std::move(*steps), edit);
}

}  // namespace perfmodel
