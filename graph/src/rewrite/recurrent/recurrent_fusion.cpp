#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "recurrent_cells.hpp"
#include "recurrent_stacks.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {
namespace {

using CellKind = UnfusedCell::Kind;

// Copies the graph with one op per cell and pass in the place of its pointwise ops.
class CellFusionWriter {
 public:
  CellFusionWriter(const ExecutionGraph& graph, const BackwardPass& pass,
                   const std::vector<UnfusedCell>& cells)
      : source_(graph), pass_(pass), cells_(cells), copy_(graph), builder_(copy_.builder()) {
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      const UnfusedCell& cell = cells_[i];
      for (const std::int32_t root : cell.roots) gone_.insert(root);
      last_[cell.roots.back()] = i;
      if (cell.kind == CellKind::kPlain) continue;  // its gradient is one kernel already
      for (const std::size_t function : cell.functions) gone_.insert(at(function).evaluate);
      if (!cell.functions.empty()) first_[at(cell.functions.front()).evaluate] = i;
    }
    workspaces_.resize(cells_.size());
  }

  ExecutionGraph write() {
    copy_all_but(source_, gone_, copy_, [&](std::int32_t index) {
      if (const auto cell = last_.find(index); cell != last_.end()) write_forward(cell->second);
      if (const auto cell = first_.find(index); cell != first_.end()) write_backward(cell->second);
    });
    return copy_.finish();
  }

 private:
  const BackwardFunction& at(std::size_t function) const { return pass_.functions[function]; }
  TensorRef tensor(std::uint32_t entry) { return builder_.tensor_of_source(entry); }
  Value tensor_or_none(const std::optional<std::uint32_t>& entry) {
    return entry ? Value(tensor(*entry)) : Value(kNone);
  }
  std::int64_t numel(std::uint32_t entry) const { return source_.tensors[entry].numel; }

  // Of the last op that autograd saw; the backward function has the same.
  std::int64_t sequence_of(const UnfusedCell& cell) const {
    std::int64_t last = -1;
    for (const std::int32_t root : cell.roots) last = std::max(last, source_.node(root).seq_id);
    return last;
  }

  void write_forward(std::size_t index) {
    const UnfusedCell& cell = cells_[index];
    copy_.close_beside(cell.roots.back());
    if (cell.kind == CellKind::kPlain) {
      write_plain(cell);
      return;
    }
    const TensorRef hidden = tensor(cell.hidden);
    const Shape shape = builder_.shape(hidden);
    const DType dtype = builder_.dtype(hidden);
    const bool lstm = cell.kind == CellKind::kLstm;
    std::vector<Value> inputs = {tensor(cell.x_gates), tensor_or_none(cell.h_gates),
                                 tensor_or_none(cell.state), kNone, kNone};
    Shape kept = shape;
    kept.back() *= lstm ? 4 : 5;
    workspaces_[index] = builder_.new_tensor(dtype, kept);
    std::vector<Value> outputs = {hidden};
    if (lstm) outputs.push_back(tensor(*cell.memory));
    outputs.push_back(workspaces_[index]);
    builder_.leaf_op(lstm ? "aten::_thnn_fused_lstm_cell" : "aten::_thnn_fused_gru_cell", inputs,
                     outputs, sequence_of(cell));
  }

  void write_plain(const UnfusedCell& cell) {
    write_generated(builder_, cell.activation,
                    {tensor(cell.x_gates), tensor_or_none(cell.h_gates), numel(cell.hidden)},
                    tensor(cell.hidden), sequence_of(cell));
  }

  // What the rest of the pass hands to the cell and takes from it.
  struct Gradients {
    std::optional<std::uint32_t> hidden, memory;  // in
    std::optional<std::uint32_t> x_gates, h_gates;
    std::optional<std::uint32_t> state;  // as it leaves, sums included
    std::int32_t sum = -1;               // adds it to what came first from elsewhere
    std::optional<std::uint32_t> came_first;
  };

  std::optional<std::uint32_t> first_output(std::int32_t index) const {
    for (const Argument& argument : source_.outputs(index)) {
      if (argument.kind == Argument::Kind::kTensor) return argument.index;
    }
    return std::nullopt;
  }

  bool belongs_to(std::size_t function, std::int32_t root) const {
    const auto is_root = [&](std::int32_t up) { return up == root; };
    return source_.find_around(at(function).forward, is_root) >= 0;
  }

  Gradients gradients_of(const UnfusedCell& cell) const {
    Gradients found;
    const std::set<std::size_t> own(cell.functions.begin(), cell.functions.end());
    const std::int64_t state_size = numel(cell.hidden);
    for (const GradientEdge& edge : pass_.edges) {
      const auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
      const bool leaves = edge.from >= 0 && own.contains(from), enters = own.contains(to);
      if (leaves == enters) continue;
      const std::uint32_t summed =
          edge.sum >= 0 ? first_output(edge.sum).value_or(edge.tensor) : edge.tensor;
      if (enters) {
        (cell.memory_root >= 0 && belongs_to(to, cell.memory_root) ? found.memory : found.hidden) =
            summed;
      } else if (numel(edge.tensor) == state_size) {
        if (!found.state && edge.sum >= 0) {
          for_each_tensor(source_, source_.inputs(edge.sum), [&](const Tensor& one) {
            if (one.id != source_.tensors[edge.tensor].id && !found.came_first) {
              found.came_first = static_cast<std::uint32_t>(&one - source_.tensors.data());
            }
          });
        }
        if (edge.sum >= 0) found.sum = edge.sum;
        found.state = summed;
      } else if (cell.kind == CellKind::kGru && cell.h_gates_root >= 0 &&
                 belongs_to(to, cell.h_gates_root)) {
        found.h_gates = edge.tensor;
      } else {
        found.x_gates = edge.tensor;
      }
    }
    if (!found.came_first) found.sum = -1;
    return found;
  }

  TensorRef given_or_new(const std::optional<std::uint32_t>& entry, DType dtype, Shape shape) {
    return entry ? tensor(*entry) : builder_.new_tensor(dtype, std::move(shape));
  }

  void write_backward(std::size_t index) {
    const UnfusedCell& cell = cells_[index];
    const Gradients gradients = gradients_of(cell);
    const bool lstm = cell.kind == CellKind::kLstm;
    copy_.close_beside(at(cell.functions.front()).evaluate);
    const TensorRef hidden = tensor(cell.hidden);
    const Shape shape = builder_.shape(hidden);
    const DType dtype = builder_.dtype(hidden);
    Shape gates = shape;
    gates.back() *= lstm ? 4 : 3;
    const auto incoming = [&](const std::optional<std::uint32_t>& entry) {
      return entry ? tensor(*entry) : builder_.undefined();
    };
    const std::string name = lstm ? "ThnnFusedLstmCellBackward0" : "ThnnFusedGruCellBackward0";
    const TensorRef of_hidden = incoming(gradients.hidden), of_memory = incoming(gradients.memory);
    builder_.begin_plain("autograd::engine::evaluate_function: " + name);
    builder_.begin_backward_function(
        name, lstm ? std::vector{of_hidden, of_memory} : std::vector{of_hidden}, sequence_of(cell));
    const TensorRef of_state = gradients.came_first || !gradients.state
                                   ? builder_.new_tensor(dtype, shape)
                                   : tensor(*gradients.state);
    const TensorRef of_gates = given_or_new(gradients.x_gates, dtype, gates);
    if (lstm) {
      builder_.leaf_op("aten::_thnn_fused_lstm_cell_backward_impl",
                       {of_hidden, of_memory, tensor_or_none(cell.state), tensor(*cell.memory),
                        workspaces_[index], false},
                       {of_gates, of_state, builder_.undefined()});
    } else {
      const TensorRef of_h_gates = given_or_new(gradients.h_gates, dtype, gates);
      builder_.leaf_op(
          "aten::_thnn_fused_gru_cell_backward", {of_hidden, workspaces_[index], false},
          {of_gates, of_h_gates, of_state, builder_.undefined(), builder_.undefined()});
    }
    builder_.end_op();
    if (gradients.sum >= 0) {
      builder_.leaf_op(std::string(source_.name(gradients.sum)) + ".Tensor",
                       {tensor(*gradients.came_first), of_state, 1}, {tensor(*gradients.state)});
    }
    builder_.end_op();
  }

  const ExecutionGraph& source_;
  const BackwardPass& pass_;
  const std::vector<UnfusedCell>& cells_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  std::set<std::int32_t> gone_;                // ops and evaluated functions of cells
  std::map<std::int32_t, std::size_t> last_;   // last op of a cell -> which
  std::map<std::int32_t, std::size_t> first_;  // first function
  std::vector<TensorRef> workspaces_;          // by cell
};

std::string found_instead(const ExecutionGraph& graph) {
  for (const Node& op : graph.nodes) {
    const std::string_view name = graph.name(op);
    if (name.starts_with("aten::_thnn_fused_")) {
      return fmt::format(": found {}, a cell that is fused (node {})", name, op.id);
    }
    if (name == "aten::_cudnn_rnn" || name == "aten::miopen_rnn") {
      return fmt::format(": found {}, a library's layers (node {})", name, op.id);
    }
  }
  return "";
}

}  // namespace

Result<UnfusedCells> unfused_cells_of(const ExecutionGraph& graph, const BackwardPass& pass) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  UnfusedCells found = find_unfused_cells(graph, pass);
  if (found.cells.empty()) {
    return fail(ErrorCode::kImpossible,
                "lstm: expected cells of LSTM, GRU or RNN layers in single ops, found none" +
                    (found.broken.empty() ? found_instead(graph) : "; " + found.broken));
  }
  if (!graph.tensors[found.cells.front().hidden].on_gpu()) {
    return fail(ErrorCode::kImpossible,
                "lstm: expected cells on a GPU, found them on a CPU: --retarget comes first");
  }
  return found;
}

Result<ExecutionGraph> check_unfused_cells(const ExecutionGraph& graph) {
  const auto found = unfused_cells_of(graph, backward_pass(graph));
  if (!found) return Unexpected{found.error()};
  return graph;
}

namespace {

void note_broken(const UnfusedCells& found, ExecutionGraph& made) {
  if (found.broken.empty()) return;
  made.warnings.push_back(fmt::format("lstm: {} cells are fused, others are none: {}",
                                      found.cells.size(), found.broken));
}

// Cells that are in no layer, each for itself.
ExecutionGraph fuse_alone(const ExecutionGraph& graph, const Error& why) {
  const BackwardPass pass = backward_pass(graph);
  const UnfusedCells found = find_unfused_cells(graph, pass);
  ExecutionGraph made = CellFusionWriter(graph, pass, found.cells).write();
  made.warnings.push_back(
      fmt::format("{}; products of {} cells stay one per step", why.message, found.cells.size()));
  return made;
}

}  // namespace

Result<ExecutionGraph> rewrite_recurrent_cells(const ExecutionGraph& graph,
                                               RecurrentLayout layout) {
  const BackwardPass pass = backward_pass(graph);
  const auto found = unfused_cells_of(graph, pass);
  if (!found) return Unexpected{found.error()};
  auto layers = find_stacks_of_layers(graph, *found);
  Result<ExecutionGraph> made =
      layers ? write_fused_layers(graph, pass, *found, std::move(layers->stacks), layout)
             : Unexpected{layers.error()};
  if (!made && layout == RecurrentLayout::kHiddenMajor) return made;
  if (!made) {
    made = fuse_alone(graph, made.error());
  } else if (layers->left) {
    made = fuse_alone(*made, *layers->left);
  }
  note_broken(*found, *made);
  return made;
}

}  // namespace perfmodel
