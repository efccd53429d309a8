#include "recurrent_stacks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "base/contains.hpp"
#include "step/backward_groups.hpp"

namespace perfmodel {
namespace {

Unexpected no_layers(std::string why) {
  return fail(ErrorCode::kImpossible, "lstm: " + std::move(why));
}

std::string name_with_id(const ExecutionGraph& graph, std::int32_t op) {
  return op < 0 ? "a tensor from outside"
                : fmt::format("{} (node {})", graph.name(op), graph.node(op).id);
}

// The second argument; from the end if negative.
std::int64_t dimension_of(const ExecutionGraph& graph, std::int32_t op) {
  constexpr std::int64_t kRank = 3;
  const auto inputs = graph.inputs(op);
  if (inputs.size() < 2 || inputs[1].kind != Argument::Kind::kInt) return 0;
  return inputs[1].integer < 0 ? inputs[1].integer + kRank : inputs[1].integer;
}

// Each step of `layer` reads the same step of `below`, by a dropout or directly.
bool reads(const StepView& in, const LayerOfCells& layer, const LayerOfCells& below,
           double& dropout) {
  const ExecutionGraph& graph = in.graph();
  const ForwardFlow& flow = in.forward();
  if (layer.cells.size() != below.cells.size()) return false;
  for (std::size_t step = 0; step < layer.cells.size(); ++step) {
    std::int32_t from = layer.inputs[step]->input->op;
    if (from >= 0 && graph.name(from) == "aten::dropout") {
      const auto inputs = graph.inputs(from);
      dropout = inputs.size() > 1 ? inputs[1].real : 0;
      from = flow.inputs(from).empty() ? -1 : flow.inputs(from)[0]->op;
    }
    if (from != below.cells[step]->hidden->op) return false;
  }
  return true;
}

class StackFinder {
 public:
  StackFinder(const StepView& step, const UnfusedCells& cells)
      : step_(step), graph_(step.graph()), flow_(step.forward()), cells_(cells) {}

  // Layers that no call takes are left as they are, unless all are.
  Result<StacksOfLayers> find() {
    std::vector<LayerOfCells> layers;
    for (const auto& cells : cells_by_weights()) {
      auto layer = layer_of(cells);
      if (layer) layers.push_back(std::move(*layer));
      if (!layer) leave(layer.error());
    }
    for (LayerOfCells& layer : layers) {
      if (auto good = place(layer); !good) leave(good.error());
    }
    std::erase_if(found_.stacks, [&](StackOfLayers& stack) {
      const auto closed = close(stack);
      if (!closed) leave(closed.error());
      return !closed;
    });
    if (found_.stacks.empty()) return Unexpected{*found_.left};
    if (auto good = leave_out(); !good) return Unexpected{good.error()};
    return std::move(found_);
  }

 private:
  using Cells = std::vector<const UnfusedCell*>;

  std::string named(std::int32_t op) const { return name_with_id(graph_, op); }
  std::int32_t weight(const CellProduct& product) const {
    return step_.tensors().of(graph_.tensors[product.weight->tensor]);
  }
  void leave(const Error& why) {
    if (!found_.left) found_.left = why;
  }

  // Steps that share both weights are a layer.
  std::vector<Cells> cells_by_weights() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> by_weights;
    std::vector<Cells> groups;
    for (const UnfusedCell& cell : cells_.cells) {
      if (cell.products.size() != 2) {
        leave(no_layers(fmt::format("expected a product of the input and one of the state in front "
                                    "of each cell, found {} in front of {}",
                                    cell.products.size(), named(cell.hidden->op)))
                  .value());
        continue;
      }
      const auto weights = std::minmax({weight(cell.products[0]), weight(cell.products[1])});
      const auto [at, is_new] = by_weights.try_emplace(weights, groups.size());
      if (is_new) groups.emplace_back();
      groups[at->second].push_back(&cell);
    }
    return groups;
  }

  // The second step tells which product has the state.
  Result<LayerOfCells> layer_of(const Cells& cells) const {
    if (cells.size() < 2) {
      return no_layers(fmt::format("expected layers of two steps or more, found one step at {}",
                                   named(cells.front()->hidden->op)));
    }
    const auto broken_step = [&](const UnfusedCell& cell) {
      return no_layers(
          fmt::format("expected each step to read the state of the step before, found another "
                      "state at {}",
                      named(cell.hidden->op)));
    };
    const auto& second = cells[1]->products;
    const auto of_state = std::ranges::find(second, cells[0]->hidden->op,
                                            [](const auto& one) { return one.input->op; });
    if (of_state == second.end()) return broken_step(*cells[1]);
    LayerOfCells layer{.cells = cells};
    for (const UnfusedCell* cell : cells) {
      const std::size_t state = weight(cell->products[0]) == weight(*of_state) ? 0 : 1;
      const CellProduct &of_h = cell->products[state], &of_x = cell->products[1 - state];
      const bool is_next =
          layer.states.empty() || of_h.input->op == cells[layer.states.size() - 1]->hidden->op;
      if (!is_next) return broken_step(*cell);
      layer.states.push_back(&of_h);
      layer.inputs.push_back(&of_x);
      layer.ops.insert(cell->ops.begin(), cell->ops.end());
      layer.ops.insert({of_h.op, of_x.op});
    }
    return layer;
  }

  // On top of a layer that is there, or on a sequence whose steps all are there before the first.
  Result<void> place(LayerOfCells& layer) {
    for (StackOfLayers& stack : found_.stacks) {
      double dropout = 0;
      if (!reads(step_, layer, stack.layers.back(), dropout)) continue;
      const bool is_alike = layer.cells[0]->kind == stack.first().kind &&
                            graph_.tensors[layer.cells[0]->hidden->tensor].numel ==
                                graph_.tensors[stack.first().hidden->tensor].numel &&
                            (stack.layers.size() == 1 || dropout == stack.dropout);
      if (!is_alike) break;
      for (const CellProduct* input : layer.inputs) layer.ops.insert(input->input->op);
      stack.dropout = dropout;
      stack.layers.push_back(std::move(layer));
      return {};
    }
    const std::int32_t sequence = layer.inputs[0]->input->op;
    for (const CellProduct* product : layer.inputs) {
      if (product->input->op == sequence && sequence >= 0) continue;
      return no_layers(
          fmt::format("a library takes the inputs of all steps at once: expected them to come from "
                      "one sequence or from the layer below, found {}",
                      named(product->input->op)));
    }
    if (graph_.name(sequence) != "aten::unbind") {
      return no_layers(fmt::format("expected the steps of a sequence from aten::unbind, found {}",
                                   named(sequence)));
    }
    StackOfLayers& stack = found_.stacks.emplace_back();
    stack.sequence = sequence;
    stack.layers.push_back(std::move(layer));
    return {};
  }

  // Only the next layer and the op that joins the results may read the states.
  Result<void> close(StackOfLayers& stack) const {
    for (std::size_t at = 0; at + 1 < stack.layers.size(); ++at) {
      const std::set<std::int32_t> outside = readers_outside(stack, at);
      if (outside.empty()) continue;
      return no_layers(
          fmt::format("expected layers below to be read by the next one alone, found {}",
                      named(*outside.begin())));
    }
    const std::set<std::int32_t> outside = readers_outside(stack, stack.layers.size() - 1);
    if (outside.size() != 1 || graph_.name(*outside.begin()) != "aten::stack") {
      return no_layers(
          fmt::format("expected the results of all steps to be joined by one aten::stack, found {}",
                      outside.empty() ? "none" : named(*outside.rbegin())));
    }
    stack.joined = *outside.begin();
    return read_shapes(stack);
  }

  std::set<std::int32_t> readers_outside(const StackOfLayers& stack, std::size_t at) const {
    std::set<std::int32_t> outside;
    for (const UnfusedCell* cell : stack.layers[at].cells) {
      for (const Version* state : {cell->hidden, cell->memory}) {
        if (!state) continue;
        for (const std::int32_t reader : state->readers) {
          const bool is_inside =
              stack.layers[at].ops.contains(reader) ||
              (at + 1 < stack.layers.size() && stack.layers[at + 1].ops.contains(reader));
          if (!is_inside) outside.insert(reader);
        }
      }
    }
    return outside;
  }

  // [T, B, I] or [B, T, I] in, states [B, H], [T, B, H] or [B, T, H] out.
  Result<void> read_shapes(StackOfLayers& stack) const {
    const auto& taken = flow_.inputs(stack.sequence);
    const auto& given = flow_.outputs(stack.joined);
    if (taken.empty() || given.empty()) return odd_shapes(stack);
    stack.input = taken.front()->tensor;
    stack.output = given.front()->tensor;
    stack.input_dimension = dimension_of(graph_, stack.sequence);
    stack.output_dimension = dimension_of(graph_, stack.joined);
    const auto state = graph_.shape(graph_.tensors[stack.first().hidden->tensor]);
    const auto is_sequence = [&](std::uint32_t tensor, std::int64_t along) {
      const auto shape = graph_.shape(graph_.tensors[tensor]);
      return shape.size() == 3 && (along == 0 || along == 1) &&
             shape[along] == std::ssize(stack.layers.front().cells) && shape[1 - along] == state[0];
    };
    if (state.size() == 2 && is_sequence(stack.input, stack.input_dimension) &&
        is_sequence(stack.output, stack.output_dimension) &&
        graph_.shape(graph_.tensors[stack.output]).back() == state[1]) {
      return {};
    }
    return odd_shapes(stack);
  }
  Unexpected odd_shapes(const StackOfLayers& stack) const {
    return no_layers(
        fmt::format("expected a sequence of three dimensions, states of two and the states of all "
                    "steps as result at {}",
                    named(stack.sequence)));
  }

  // --- the nodes of stacks that were found
  // --------------------------------------------------------

  Result<void> leave_out() {
    std::vector<std::int32_t> stack_of(graph_.nodes.size(), -1);
    for (std::size_t i = 0; i < found_.stacks.size(); ++i) {
      const StackOfLayers& stack = found_.stacks[i];
      stack_of[stack.sequence] = stack_of[stack.joined] = static_cast<std::int32_t>(i);
      for (const LayerOfCells& layer : stack.layers) {
        for (const std::int32_t op : layer.ops) stack_of[op] = static_cast<std::int32_t>(i);
      }
    }
    const auto backward = backward_groups(step_, stack_of, found_.stacks.size());
    for (std::size_t i = 0; i < found_.stacks.size(); ++i) {
      leave_out_forward(found_.stacks[i]);
      if (backward[i].functions.empty()) continue;
      if (auto good = leave_out_backward(found_.stacks[i], backward[i]); !good) return good;
      if (auto good = read_gradients(found_.stacks[i], backward[i]); !good) return good;
    }
    return {};
  }

  void leave_out_forward(const StackOfLayers& stack) {
    constexpr std::array kLeft = {"aten::unbind", "aten::zeros", "aten::t", "aten::zeros_like",
                                  "aten::new_zeros"};
    found_.nodes.insert(stack.joined);
    for (const LayerOfCells& layer : stack.layers) {
      found_.nodes.insert(layer.ops.begin(), layer.ops.end());
    }
    for (auto op = flow_.ops().rbegin(); op != flow_.ops().rend(); ++op) {
      if (!contains(kLeft, graph_.name(*op))) continue;
      bool is_read = false, is_read_outside = false;
      for (const Version* result : flow_.outputs(*op)) {
        for (const std::int32_t reader : result->readers) {
          is_read = true;
          is_read_outside |= !found_.nodes.contains(reader);
        }
      }
      if (is_read && !is_read_outside) found_.nodes.insert(*op);
    }
  }

  // The last function that takes a gradient from elsewhere stays, in place of all.
  Result<void> leave_out_backward(StackOfLayers& stack, const BackwardGroup& backward) {
    if (!found_.nodes.contains(stack.sequence)) {
      return no_layers(
          fmt::format("expected steps of a sequence that the layers alone read, found another "
                      "reader of {}",
                      named(stack.sequence)));
    }
    std::int32_t last = backward.functions.front();
    for (const GradientEdge& edge : backward.incoming) last = std::max(last, edge.to);
    for (const GradientEdge& edge : backward.outgoing) {
      if (edge.to >= last) continue;
      return no_layers(
          "expected gradients of layers that nothing needs before all steps have theirs");
    }
    const auto& functions = step_.backward().functions;
    for (const std::int32_t one : backward.functions) found_.nodes.insert(functions[one].evaluate);
    stack.has_backward = true;
    stack.first_function = functions[backward.functions.front()].evaluate;
    stack.last_function = functions[last].evaluate;
    return {};
  }

  // A gradient has the sizes of its tensor; gradients of weights may be transposed.
  Result<void> read_gradients(StackOfLayers& stack, const BackwardGroup& backward) const {
    const auto& functions = step_.backward().functions;
    std::optional<std::uint32_t> incoming;
    for (const std::int32_t one : backward.functions) {
      if (flow_.op_around(functions[one].forward) != stack.joined) continue;
      const auto taken = graph_.inputs(functions[one].function);
      const bool is_tensor = !taken.empty() && taken[0].kind == Argument::Kind::kTensor;
      incoming = is_tensor ? std::optional(taken[0].index) : std::nullopt;
    }
    if (!incoming) {
      return no_layers(fmt::format("expected the gradient of the layers' result, found none at {}",
                                   named(stack.joined)));
    }
    stack.incoming = *incoming;
    std::map<std::int32_t, StackOfLayers::Gradient> by_taker;
    for (const GradientEdge& edge : backward.outgoing) {
      by_taker[edge.to] = {.op = flow_.op_around(functions[edge.from].forward),
                           .tensor = taken_gradient(graph_, edge),
                           .of_parameter = functions[edge.to].accumulates()};
    }
    const auto check = [&](std::int32_t op, std::uint32_t gradient,
                           std::uint32_t tensor) -> Result<void> {
      if (std::ranges::equal(graph_.shape(graph_.tensors[gradient]),
                             graph_.shape(graph_.tensors[tensor]))) {
        return {};
      }
      return no_layers(fmt::format(
          "expected a gradient of the sizes of its tensor, found another at {}", named(op)));
    };
    if (auto good = check(stack.joined, stack.incoming, stack.output); !good) return good;
    for (const auto& [taker, one] : by_taker) {
      stack.outgoing.push_back(one);
      if (one.op != stack.sequence) continue;
      if (auto good = check(one.op, one.tensor, stack.input); !good) return good;
    }
    return {};
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  const ForwardFlow& flow_;
  const UnfusedCells& cells_;
  StacksOfLayers found_;
};

}  // namespace

Result<StacksOfLayers> find_stacks_of_layers(const StepView& step, const UnfusedCells& found) {
  return StackFinder(step, found).find();
}

ExecutionGraph write_in_place_of(const StacksOfLayers& found, GraphEdit& edit,
                                 const std::function<void(std::size_t)>& forward,
                                 const std::function<void(std::size_t)>& backward) {
  for (const std::int32_t node : found.nodes) edit.replace(node);
  for (std::size_t i = 0; i < found.stacks.size(); ++i) {
    const StackOfLayers& stack = found.stacks[i];
    edit.replace(*stack.layers.front().ops.begin(), [&edit, &stack, &forward, i] {
      edit.copy().close_beside(stack.first().ops.back());
      forward(i);
    });
    if (!stack.has_backward) continue;
    edit.replace(stack.last_function, [&edit, &stack, &backward, i] {
      edit.copy().close_beside(stack.first_function);
      backward(i);
    });
  }
  return edit.write();
}

}  // namespace perfmodel
