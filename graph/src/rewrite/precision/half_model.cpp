#include "half_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"
#include "builders/emit/optimizers.hpp"
#include "ops/catalogue.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/dialect.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

/// Nodes below a label of an optimizer step.
std::vector<bool> nodes_of_optimizers(const ExecutionGraph& graph) {
  std::vector<bool> inside(graph.nodes.size());
  for (const std::int32_t label : optimizer_steps(graph)) {
    inside[label] = true;
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::int32_t parent = graph.nodes[i].parent;
    if (parent >= 0 && inside[parent]) inside[i] = true;
  }
  return inside;
}

void note_fp32(const ExecutionGraph& graph, std::span<const Argument> arguments, std::size_t first,
               std::set<std::int64_t>& ids) {
  for (std::size_t i = first; i < arguments.size(); ++i) {
    for_each_tensor(graph, arguments.subspan(i, 1),
                    [&](const Tensor& tensor) { ids.insert(tensor.id); });
  }
}

/// Statistics of norms and log-sum-exps of attention are fp32 beside inputs of half types, and all
/// that a batch norm has beside its input and result (Apex: keep_batchnorm_fp32).
std::set<std::int64_t> tensors_left_in_fp32(const ExecutionGraph& graph) {
  std::set<std::int64_t> ids;
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    const Op* op = find_op(name);
    if (op == nullptr || (op->kind != OpKind::kNorm && op->kind != OpKind::kAttention)) continue;
    const bool backward = name.ends_with("_backward");
    if (name.find("batch_norm") != std::string_view::npos) {
      note_fp32(graph, graph.inputs(node), backward ? 2 : 1, ids);
      note_fp32(graph, graph.outputs(node), 1, ids);
    } else if (!backward) {
      note_fp32(graph, graph.outputs(node), 1, ids);
    }
  }
  return ids;
}

/// The graph with half types in all fp32 tensors on the GPU but these and, where steps of
/// optimizers mention them, all but weights and their gradients.
ExecutionGraph in_half_type(const ExecutionGraph& graph, DType half,
                            const std::map<std::int32_t, ReadStep>& steps,
                            const std::vector<bool>& optimizer) {
  const std::set<std::int64_t> stay = tensors_left_in_fp32(graph);
  ExecutionGraph made = graph;
  const auto lower = [&](const Tensor& tensor) {
    if (tensor.dtype != DType::kFloat32 || !tensor.on_gpu() || stay.contains(tensor.id)) return;
    Tensor& changed = made.tensors[&tensor - graph.tensors.data()];
    changed.dtype = half;
    changed.item_size = 2;
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (optimizer[i]) continue;
    for_each_tensor(graph, graph.inputs(graph.nodes[i]), lower);
    for_each_tensor(graph, graph.outputs(graph.nodes[i]), lower);
  }
  for (const auto& [label, step] : steps) {
    for (const ReadGroup& group : step.groups) {
      for (const ReadUpdate& update : group.updates) {
        lower(graph.tensors[update.parameter]);
        lower(graph.tensors[update.gradient]);
      }
    }
  }
  return made;
}

/// Writes a step that updates fp32 copies.
class MasterStepWriter {
 public:
  MasterStepWriter(GraphCopy& copy, std::map<std::int64_t, TensorRef>& masters)
      : copy_(copy), graph_(copy.builder()), masters_(masters) {}

  void write(const ReadStep& step) {
    for (const ReadGroup& group : step.groups) {
      std::vector<ParameterUpdate> updates;
      std::vector<std::pair<TensorRef, TensorRef>> pairs;  // weight, its copy
      for (const ReadUpdate& update : group.updates) {
        ParameterUpdate made{.parameter = tensor(update.parameter),
                             .gradient = tensor(update.gradient),
                             .step = tensor(update.step),
                             .first = tensor(update.first),
                             .second = tensor(update.second)};
        if (graph_.dtype(made.parameter) != DType::kFloat32) {
          pairs.emplace_back(made.parameter, master_of(update.parameter, made.parameter));
          made.parameter = pairs.back().second;
          if (graph_.dtype(made.gradient) != DType::kFloat32) {
            made.gradient = to_dtype(graph_, made.gradient, DType::kFloat32);
          }
        }
        updates.push_back(made);
      }
      emit_optimizer(graph_, group.settings, std::move(updates));
      for (const auto& [weight, master] : pairs) perfmodel::copy(graph_, weight, master);
    }
  }

 private:
  TensorRef tensor(std::int64_t index) {
    if (index < 0) return {};
    return graph_.tensor_of_source(static_cast<std::uint32_t>(index));
  }
  TensorRef master_of(std::int64_t index, TensorRef weight) {
    const std::int64_t id = copy_.source().tensors[index].id;
    const auto found = masters_.find(id);
    if (found != masters_.end()) return found->second;
    const TensorRef made = graph_.new_tensor(DType::kFloat32, graph_.shape(weight));
    return masters_.emplace(id, made).first->second;
  }

  GraphCopy& copy_;
  GraphBuilder& graph_;
  std::map<std::int64_t, TensorRef>& masters_;  // by id of the weight
};

Unexpected refuse_sparse_gradient() {
  return fail(ErrorCode::kImpossible,
              "precision: expected dense gradients for master weights, found a sparse one");
}

Unexpected refuse_copies(std::string_view why) {
  return fail(ErrorCode::kImpossible, fmt::format("precision: expected {}", why));
}

Result<std::map<std::int32_t, ReadStep>> read_steps(const StepView& step) {
  auto steps = step.optimizers();
  if (!steps) return steps;
  for (const auto& [label, one] : *steps) {
    for (const ReadGroup& group : one.groups) {
      if (std::ranges::any_of(group.updates, &ReadUpdate::sparse)) return refuse_sparse_gradient();
    }
  }
  return steps;
}

// `graph` but for the steps, which are written anew.
ExecutionGraph with_master_steps(const ExecutionGraph& graph, const PyTorch& pytorch,
                                 const std::map<std::int32_t, ReadStep>& steps) {
  GraphEdit edit(graph, pytorch);
  std::map<std::int64_t, TensorRef> masters;
  for (const auto& [label, step] : steps) {
    edit.refill(label, [&, label = label] {
      for (const std::int32_t op : step.first) edit.copy().copy_tree(op);
      edit.copy().close_to(label);
      MasterStepWriter(edit.copy(), masters).write(step);
    });
  }
  return edit.write();
}

}  // namespace

Result<ExecutionGraph> half_model(const ExecutionGraph& source, DType half) {
  const StepView step(source);
  const ExecutionGraph& graph = step.graph();
  const auto steps = read_steps(step);
  if (!steps) return Unexpected{steps.error()};
  const std::vector<bool> optimizer = nodes_of_optimizers(graph);
  const ExecutionGraph lowered = in_half_type(graph, half, *steps, optimizer);
  return with_master_steps(lowered, dialect_of(graph), *steps);
}

Result<ExecutionGraph> with_fp32_copies(const ExecutionGraph& source, DType half) {
  const StepView view(source);
  const ExecutionGraph& graph = view.graph();
  auto steps = read_steps(view);
  if (!steps) return Unexpected{steps.error()};
  bool any = false;
  for (auto& [label, step] : *steps) {
    for (ReadGroup& group : step.groups) {
      for (ReadUpdate& update : group.updates) {
        if (update.weight >= 0) {
          return refuse_copies(
              fmt::format("an fp32 graph, or weights in {} that the optimizer changes itself, "
                          "found fp32 copies",
                          to_string(half)));
        }
        any |= graph.tensors[update.parameter].dtype == half;
        update.first = update.second = update.first_scale = update.second_scale = -1;
      }
    }
  }
  if (!any) {
    return refuse_copies(
        fmt::format("an fp32 graph, or one with weights in {}, found neither", to_string(half)));
  }
  return with_master_steps(graph, dialect_of(graph), *steps);
}

}  // namespace perfmodel
