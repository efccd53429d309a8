#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "recurrent_stacks.hpp"
#include "step/backward_groups.hpp"

namespace perfmodel {
namespace {

using CellKind = UnfusedCell::Kind;
using Entry = std::optional<std::uint32_t>;  // into ExecutionGraph::tensors

// The gradients that the rest of the pass hands to a cell and takes from it.
struct CellGradients {
  Entry hidden, memory;  // in
  Entry x_gates, h_gates;
  Entry state;            // as it leaves, sums included
  std::int32_t sum = -1;  // adds it to what came first from elsewhere
  Entry came_first;
};

Entry other_addend(const ExecutionGraph& graph, const GradientEdge& edge) {
  Entry other;
  for_each_tensor(graph, graph.inputs(edge.sum), [&](const Tensor& one) {
    if (one.id == graph.tensors[edge.tensor].id || other) return;
    other = static_cast<std::uint32_t>(&one - graph.tensors.data());
  });
  return other;
}

CellGradients gradients_of(const StepView& step, const UnfusedCell& cell,
                           const BackwardGroup& backward) {
  const ExecutionGraph& graph = step.graph();
  const auto reaches = [&](const GradientEdge& edge, const Version* result) {
    const std::int32_t forward = step.backward().functions[edge.to].forward;
    return result && result->op >= 0 && step.forward().op_around(forward) == result->op;
  };
  CellGradients found;
  for (const GradientEdge& edge : backward.incoming) {
    (reaches(edge, cell.memory) ? found.memory : found.hidden) = taken_gradient(graph, edge);
  }
  for (const GradientEdge& edge : backward.outgoing) {
    if (graph.tensors[edge.tensor].numel == graph.tensors[cell.hidden->tensor].numel) {
      if (edge.sum >= 0) {
        if (!found.state) found.came_first = other_addend(graph, edge);
        found.sum = edge.sum;
      }
      found.state = taken_gradient(graph, edge);
    } else if (cell.kind == CellKind::kGru && reaches(edge, cell.h_gates)) {
      found.h_gates = edge.tensor;
    } else {
      found.x_gates = edge.tensor;
    }
  }
  return found;
}

// One op per cell and pass in place of its pointwise ops.
class FusedCell {
 public:
  FusedCell(const StepView& step, GraphEdit& edit, const UnfusedCell& cell,
            const BackwardGroup& backward)
      : step_(step),
        edit_(edit),
        cell_(cell),
        backward_(backward),
        is_lstm_(cell.kind == CellKind::kLstm) {
    // The backward function has the number of the last op that autograd saw.
    for (const std::int32_t op : cell.ops) {
      sequence_ = std::max(sequence_, step.graph().node(op).seq_id);
    }
  }

  void forward() {
    edit_.copy().close_beside(cell_.ops.back());
    const TensorRef hidden = tensor(cell_.hidden);
    const Value x_gates = tensor(cell_.x_gates), h_gates = tensor_or_none(cell_.h_gates);
    if (cell_.kind == CellKind::kPlain) {
      write_generated(builder_, cell_.activation, {x_gates, h_gates, builder_.numel(hidden)},
                      hidden, sequence_);
      return;
    }
    workspace_ = builder_.new_tensor(builder_.dtype(hidden), states(is_lstm_ ? 4 : 5));
    std::vector<Value> outputs = {hidden};
    if (is_lstm_) outputs.emplace_back(tensor(cell_.memory));
    outputs.emplace_back(workspace_);
    builder_.leaf_op(is_lstm_ ? "aten::_thnn_fused_lstm_cell" : "aten::_thnn_fused_gru_cell",
                     {x_gates, h_gates, tensor_or_none(cell_.state), kNone, kNone}, outputs,
                     sequence_);
  }

  void backward() {
    const CellGradients gradients = gradients_of(step_, cell_, backward_);
    edit_.copy().close_beside(step_.backward().functions[backward_.functions.front()].evaluate);
    const std::string name = is_lstm_ ? "ThnnFusedLstmCellBackward0" : "ThnnFusedGruCellBackward0";
    const TensorRef of_hidden = given(gradients.hidden), of_memory = given(gradients.memory);
    builder_.begin_plain("autograd::engine::evaluate_function: " + name);
    builder_.begin_backward_function(
        name, is_lstm_ ? std::vector{of_hidden, of_memory} : std::vector{of_hidden}, sequence_);
    const TensorRef of_state = given_or_new(gradients.came_first ? Entry{} : gradients.state, 1);
    const TensorRef of_gates = given_or_new(gradients.x_gates, is_lstm_ ? 4 : 3);
    if (is_lstm_) {
      builder_.leaf_op("aten::_thnn_fused_lstm_cell_backward_impl",
                       {of_hidden, of_memory, tensor_or_none(cell_.state), tensor(cell_.memory),
                        workspace_, false},
                       {of_gates, of_state, builder_.undefined()});
    } else {
      const TensorRef of_h_gates = given_or_new(gradients.h_gates, 3);
      builder_.leaf_op(
          "aten::_thnn_fused_gru_cell_backward", {of_hidden, workspace_, false},
          {of_gates, of_h_gates, of_state, builder_.undefined(), builder_.undefined()});
    }
    builder_.end_op();
    if (gradients.came_first) {
      builder_.leaf_op(std::string(step_.graph().name(gradients.sum)) + ".Tensor",
                       {given(gradients.came_first), of_state, 1}, {given(gradients.state)});
    }
    builder_.end_op();
  }

 private:
  TensorRef tensor(const Version* version) { return builder_.tensor_of_source(version->tensor); }
  Value tensor_or_none(const Version* version) {
    return version ? Value(tensor(version)) : Value(kNone);
  }
  TensorRef given(const Entry& entry) {
    return entry ? builder_.tensor_of_source(*entry) : builder_.undefined();
  }
  // So many vectors of the hidden size per sample.
  Shape states(std::int64_t count) {
    Shape shape = builder_.shape(tensor(cell_.hidden));
    shape.back() *= count;
    return shape;
  }
  TensorRef given_or_new(const Entry& entry, std::int64_t count) {
    if (entry) return builder_.tensor_of_source(*entry);
    return builder_.new_tensor(builder_.dtype(tensor(cell_.hidden)), states(count));
  }

  const StepView& step_;
  GraphEdit& edit_;
  GraphBuilder& builder_ = edit_.builder();
  const UnfusedCell& cell_;
  const BackwardGroup& backward_;
  const bool is_lstm_;
  std::int64_t sequence_ = -1;
  TensorRef workspace_;
};

ExecutionGraph fuse_cells(const StepView& step, const std::vector<UnfusedCell>& cells) {
  std::vector<std::int32_t> cell_of(step.graph().nodes.size(), -1);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    for (const std::int32_t op : cells[i].ops) cell_of[op] = static_cast<std::int32_t>(i);
  }
  const std::vector<BackwardGroup> backward = backward_groups(step, cell_of, cells.size());
  const auto& functions = step.backward().functions;
  GraphEdit edit(step.graph());
  std::vector<FusedCell> fused;
  fused.reserve(cells.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    FusedCell& cell = fused.emplace_back(step, edit, cells[i], backward[i]);
    for (const std::int32_t op : cells[i].ops) edit.replace(op);
    edit.replace(cells[i].ops.back(), [&cell] { cell.forward(); });
    if (cells[i].kind == CellKind::kPlain) continue;  // its gradient is one kernel already
    for (const std::int32_t one : backward[i].functions) edit.replace(functions[one].evaluate);
    if (backward[i].functions.empty()) continue;
    edit.replace(functions[backward[i].functions.front()].evaluate, [&cell] { cell.backward(); });
  }
  return edit.write();
}

// Cells that are in no layer, each for itself.
ExecutionGraph fuse_alone(const ExecutionGraph& graph, const Error& why) {
  const StepView step(graph);
  const std::vector<UnfusedCell> cells = find_unfused_cells(step).cells;
  ExecutionGraph made = fuse_cells(step, cells);
  made.warnings.push_back(
      fmt::format("{}; products of {} cells stay one per step", why.message, cells.size()));
  return made;
}

}  // namespace

Result<ExecutionGraph> check_unfused_cells(const ExecutionGraph& graph) {
  PERFMODEL_TRY(found, unfused_cells_of(StepView(graph)));
  return graph;
}

Result<ExecutionGraph> rewrite_recurrent_cells(const ExecutionGraph& graph,
                                               RecurrentLayout layout) {
  const StepView step(graph);
  PERFMODEL_TRY(cells, unfused_cells_of(step));
  const auto layers = find_stacks_of_layers(step, *cells);
  if (!layers && layout == RecurrentLayout::kHiddenMajor) return Unexpected{layers.error()};
  ExecutionGraph made =
      layers ? write_fused_layers(step, *layers, layout) : fuse_alone(graph, layers.error());
  if (layers && layers->left) made = fuse_alone(made, *layers->left);
  if (!cells->broken.empty()) {
    made.warnings.push_back(fmt::format("lstm: {} cells are fused, others are none: {}",
                                        cells->cells.size(), cells->broken));
  }
  return made;
}

}  // namespace perfmodel
