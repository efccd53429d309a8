#include "recurrent_stacks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace perfmodel {
namespace {

using CellKind = UnfusedCell::Kind;

Unexpected no_layers(std::string why) {
  return fail(ErrorCode::kImpossible, "lstm: " + std::move(why));
}

// The second argument; from the end if negative.
std::int64_t dimension_of(const ExecutionGraph& graph, const Node& op) {
  constexpr std::int64_t kRank = 3;
  const auto inputs = graph.inputs(op);
  if (inputs.size() < 2 || inputs[1].kind != Argument::Kind::kInt) return 0;
  return inputs[1].integer < 0 ? inputs[1].integer + kRank : inputs[1].integer;
}

class LayerFinder {
 public:
  LayerFinder(const ExecutionGraph& graph, const UnfusedCells& found)
      : graph_(graph), found_(found) {}

  // Layers that no call takes are left as they are, unless all are.
  Result<std::vector<StackOfLayers>> find() {
    group();
    std::vector<StackOfLayers> stacks;
    for (LayerOfCells& layer : layers_) note(place(layer, stacks));
    std::erase_if(stacks, [&](StackOfLayers& stack) {
      const auto closed = close(stack);
      note(closed);
      return !closed;
    });
    if (stacks.empty()) return Unexpected{*left_};
    return stacks;
  }

  /// Why the first layer that is left was left.
  const std::optional<Error>& left() const { return left_; }

 private:
  std::int64_t steps_along(std::int32_t index) const {
    return dimension_of(graph_, graph_.node(index));
  }
  std::string named(std::int32_t index) const {
    return index < 0 ? "a tensor from outside"
                     : fmt::format("{} (node {})", graph_.name(index), graph_.node(index).id);
  }
  const ForwardFlow& flow(std::int32_t root) const { return found_.flow.at(root); }
  std::int64_t weight_id(const CellProduct& product) const {
    return graph_.tensors[product.weight].id;
  }

  void note(const Result<void>& good) {
    if (!good && !left_) left_ = good.error();
  }

  // Steps that share both weights are a layer.
  void group() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> by_weights;
    std::vector<std::vector<const UnfusedCell*>> groups;
    for (const UnfusedCell& cell : found_.cells) {
      if (cell.products.size() != 2) {
        note(no_layers(fmt::format(
            "expected a product of the input and one of the state in front of each cell, found {} "
            "in front of {}",
            cell.products.size(), named(cell.hidden_root))));
        continue;
      }
      std::int64_t a = weight_id(cell.products[0]), b = weight_id(cell.products[1]);
      if (a > b) std::swap(a, b);
      const auto [at, is_new] = by_weights.try_emplace({a, b}, groups.size());
      if (is_new) groups.emplace_back();
      groups[at->second].push_back(&cell);
    }
    for (const auto& cells : groups) {
      auto layer = ordered(cells);
      if (layer) {
        layers_.push_back(std::move(*layer));
      } else if (!left_) {
        left_ = layer.error();
      }
    }
  }

  // Which product has the state is told by the second step.
  Result<LayerOfCells> ordered(const std::vector<const UnfusedCell*>& cells) const {
    if (cells.size() < 2) {
      return no_layers(fmt::format("expected layers of two steps or more, found one step at {}",
                                   named(cells.front()->hidden_root)));
    }
    const auto reads_state = [&](const CellProduct& product) {
      return product.input_root == cells[0]->hidden_root;
    };
    const auto second = std::ranges::find_if(cells[1]->products, reads_state);
    if (second == cells[1]->products.end()) return broken_step(*cells[1]);
    const std::int64_t of_state = weight_id(*second);
    LayerOfCells layer{.cells = cells, .inputs = {}, .states = {}};
    for (std::size_t step = 0; step < cells.size(); ++step) {
      const auto& products = cells[step]->products;
      const std::size_t state = weight_id(products[0]) == of_state ? 0 : 1;
      layer.states.push_back(&products[state]);
      layer.inputs.push_back(&products[1 - state]);
      if (step > 0 && products[state].input_root != cells[step - 1]->hidden_root) {
        return broken_step(*cells[step]);
      }
    }
    return layer;
  }

  Unexpected broken_step(const UnfusedCell& cell) const {
    return no_layers(
        fmt::format("expected each step to read the state of the step before, found "
                    "another state at {}",
                    named(cell.hidden_root)));
  }

  // On top of a layer that is there, or on a sequence whose steps all are there before the first.
  Result<void> place(LayerOfCells& layer, std::vector<StackOfLayers>& stacks) const {
    for (StackOfLayers& stack : stacks) {
      double dropout = 0;
      if (!reads(layer, stack.layers.back(), dropout)) continue;
      const bool alike = layer.cells[0]->kind == stack.first().kind &&
                         graph_.tensors[layer.cells[0]->hidden].numel ==
                             graph_.tensors[stack.first().hidden].numel &&
                         (stack.layers.size() == 1 || dropout == stack.dropout);
      if (!alike) break;
      stack.dropout = dropout;
      stack.layers.push_back(std::move(layer));
      return {};
    }
    const std::int32_t sequence = layer.inputs[0]->input_root;
    for (const CellProduct* product : layer.inputs) {
      if (product->input_root == sequence && sequence >= 0) continue;
      return no_layers(
          fmt::format("a library takes the inputs of all steps at once: expected them to come from "
                      "one sequence or from the layer below, found {}",
                      named(product->input_root)));
    }
    if (graph_.name(sequence) != "aten::unbind") {
      return no_layers(fmt::format("expected the steps of a sequence from aten::unbind, found {}",
                                   named(sequence)));
    }
    StackOfLayers made;
    made.sequence = sequence;
    made.layers.push_back(std::move(layer));
    stacks.push_back(std::move(made));
    return {};
  }

  // Each step of `layer` reads that of `below`, by a dropout or directly.
  bool reads(const LayerOfCells& layer, const LayerOfCells& below, double& dropout) const {
    if (layer.cells.size() != below.cells.size()) return false;
    for (std::size_t step = 0; step < layer.cells.size(); ++step) {
      std::int32_t from = layer.inputs[step]->input_root;
      if (from >= 0 && graph_.name(from) == "aten::dropout") {
        const auto inputs = graph_.inputs(from);
        dropout = inputs.size() > 1 ? inputs[1].real : 0;
        from = flow(from).input_roots.empty() ? -1 : flow(from).input_roots[0];
      }
      if (from != below.cells[step]->hidden_root) return false;
    }
    return true;
  }

  // Who else reads the states.
  Result<void> close(StackOfLayers& stack) const {
    for (std::size_t at = 0; at < stack.layers.size(); ++at) {
      const LayerOfCells& layer = stack.layers[at];
      std::set<std::int32_t> outside;
      for (const UnfusedCell* cell : layer.cells) {
        for (const std::int32_t root : {cell->hidden_root, cell->memory_root}) {
          if (root < 0) continue;
          for (const std::int32_t reader : flow(root).readers) {
            if (!is_inside(stack, at, reader)) outside.insert(reader);
          }
        }
      }
      const bool top = at + 1 == stack.layers.size();
      if (!outside.empty() && !top) {
        return no_layers(
            fmt::format("expected layers below to be read by the next one alone, found {}",
                        named(*outside.begin())));
      }
      if (!top) continue;
      const bool joins = outside.size() == 1 && graph_.name(*outside.begin()) == "aten::stack";
      if (!joins) {
        return no_layers(fmt::format(
            "expected the results of all steps to be joined by one aten::stack, found {}",
            outside.empty() ? "none" : named(*outside.rbegin())));
      }
      stack.joined = *outside.begin();
    }
    return check_shapes(stack);
  }

  // [T, B, I] or [B, T, I] in, states [B, H], [T, B, H] or [B, T, H] out.
  Result<void> check_shapes(const StackOfLayers& stack) const {
    const auto state = graph_.shape(graph_.tensors[stack.first().hidden]);
    const auto sequence = tensor_at(graph_.inputs(stack.sequence), 0),
               result = tensor_at(graph_.outputs(stack.joined), 0);
    if (!sequence || !result || state.size() != 2) return odd_shapes(stack);
    const std::int64_t steps = std::ssize(stack.layers.front().cells);
    const auto is_sequence = [&](std::uint32_t entry, std::int64_t steps_along) {
      const auto shape = graph_.shape(graph_.tensors[entry]);
      return shape.size() == 3 && (steps_along == 0 || steps_along == 1) &&
             shape[steps_along] == steps && shape[1 - steps_along] == state[0];
    };
    if (!is_sequence(*sequence, steps_along(stack.sequence)) ||
        !is_sequence(*result, steps_along(stack.joined)) ||
        graph_.shape(graph_.tensors[*result]).back() != state[1]) {
      return odd_shapes(stack);
    }
    return {};
  }

  Unexpected odd_shapes(const StackOfLayers& stack) const {
    return no_layers(
        fmt::format("expected a sequence of three dimensions, states of two and the states of all "
                    "steps as result at {}",
                    named(stack.sequence)));
  }

  static bool is_inside(const StackOfLayers& stack, std::size_t at, std::int32_t reader) {
    for (std::size_t layer = at; layer < std::min(at + 2, stack.layers.size()); ++layer) {
      const LayerOfCells& one = stack.layers[layer];
      for (std::size_t step = 0; step < one.cells.size(); ++step) {
        if (std::ranges::binary_search(one.cells[step]->roots, reader)) return true;
        if (one.states[step]->root == reader || one.inputs[step]->root == reader) return true;
        if (layer > at && one.inputs[step]->input_root == reader) return true;  // dropout
      }
    }
    return false;
  }

  const ExecutionGraph& graph_;
  const UnfusedCells& found_;
  std::vector<LayerOfCells> layers_;
  std::optional<Error> left_;
};

}  // namespace

Result<StacksOfLayers> find_stacks_of_layers(const ExecutionGraph& graph,
                                             const UnfusedCells& found) {
  LayerFinder finder(graph, found);
  auto stacks = finder.find();
  if (!stacks) return Unexpected{stacks.error()};
  return StacksOfLayers{std::move(*stacks), finder.left()};
}

std::optional<std::uint32_t> tensor_at(std::span<const Argument> arguments, std::size_t position) {
  if (position >= arguments.size() || arguments[position].kind != Argument::Kind::kTensor) {
    return std::nullopt;
  }
  return arguments[position].index;
}

StackCopy::StackCopy(const ExecutionGraph& graph, const BackwardPass& pass,
                     const UnfusedCells& found, std::vector<StackOfLayers> stacks)
    : source_(graph),
      pass_(pass),
      found_(found),
      stacks_(std::move(stacks)),
      copy_(graph),
      builder_(copy_.builder()) {}

Result<ExecutionGraph> StackCopy::write(const Write& forward, const Write& backward) {
  for (std::size_t i = 0; i < stacks_.size(); ++i) {
    leave_out(i);
    if (auto good = add_functions(i); !good) return Unexpected{good.error()};
  }
  copy_all_but(source_, gone_, copy_, [&](std::int32_t index) {
    if (const auto found = forward_at_.find(index); found != forward_at_.end()) {
      copy_.close_beside(stacks_[found->second].first().roots.back());
      forward(found->second);
    }
    if (const auto found = backward_at_.find(index); found != backward_at_.end()) {
      copy_.close_beside(at(stacks_[found->second].functions.front()).evaluate);
      backward(found->second);
    }
  });
  return copy_.finish();
}

// The ops of the steps, and those whose results they alone read: views of the sequence, states of
// zeros.
void StackCopy::leave_out(std::size_t index) {
  StackOfLayers& stack = stacks_[index];
  std::int32_t first = stack.joined;
  for (std::size_t layer = 0; layer < stack.layers.size(); ++layer) {
    const LayerOfCells& one = stack.layers[layer];
    for (std::size_t step = 0; step < one.cells.size(); ++step) {
      gone_.insert(one.cells[step]->roots.begin(), one.cells[step]->roots.end());
      for (const CellProduct* product : {one.inputs[step], one.states[step]}) {
        gone_.insert(product->root);
        first = std::min(first, product->root);
      }
      if (layer > 0 && !found_cell(one.inputs[step]->input_root)) {
        gone_.insert(one.inputs[step]->input_root);
      }
    }
  }
  gone_.insert(stack.joined);
  forward_at_[first] = index;
  for (auto op = found_.flow.rbegin(); op != found_.flow.rend(); ++op) {
    const auto& [root, flow] = *op;
    const std::string_view name = source_.name(root);
    const bool plain = name == "aten::unbind" || name == "aten::zeros" || name == "aten::t" ||
                       name == "aten::zeros_like" || name == "aten::new_zeros";
    const bool unread = std::ranges::all_of(
        flow.readers, [&](std::int32_t reader) { return gone_.contains(reader); });
    if (plain && unread && !flow.readers.empty()) gone_.insert(root);
  }
}

bool StackCopy::found_cell(std::int32_t root) const {
  return std::ranges::any_of(found_.cells,
                             [&](const UnfusedCell& cell) { return cell.hidden_root == root; });
}

std::int32_t StackCopy::gone_above(std::int32_t index) const {
  return source_.find_around(index, [&](std::int32_t up) { return gone_.contains(up); });
}

bool StackCopy::belongs_to(const StackOfLayers& stack, std::int32_t root) const {
  if (root == stack.joined || root == stack.sequence) return true;
  for (const LayerOfCells& layer : stack.layers) {
    for (std::size_t step = 0; step < layer.cells.size(); ++step) {
      if (std::ranges::binary_search(layer.cells[step]->roots, root)) return true;
      if (layer.inputs[step]->root == root || layer.states[step]->root == root) return true;
      if (layer.inputs[step]->input_root == root && !found_cell(root)) return true;
    }
  }
  return false;
}

// The functions that go, and the one in whose place the call stands: the last that takes a
// gradient from elsewhere.
Result<void> StackCopy::add_functions(std::size_t index) {
  StackOfLayers& stack = stacks_[index];
  for (std::size_t i = 0; i < pass_.functions.size(); ++i) {
    const std::int32_t root = gone_above(at(i).forward);
    if (root >= 0 && belongs_to(stack, root)) stack.functions.push_back(i);
  }
  if (stack.functions.empty()) return {};
  if (!gone_.contains(stack.sequence)) {
    return no_layers(
        fmt::format("expected steps of a sequence that the layers alone read, found another "
                    "reader of {} (node {})",
                    source_.name(stack.sequence), source_.node(stack.sequence).id));
  }
  const std::set<std::size_t> own(stack.functions.begin(), stack.functions.end());
  std::size_t last = stack.functions.front();
  std::optional<std::size_t> reader;
  for (const GradientEdge& edge : pass_.edges) {
    const bool leaves = edge.from >= 0 && own.contains(static_cast<std::size_t>(edge.from));
    const bool enters = own.contains(static_cast<std::size_t>(edge.to));
    if (leaves == enters) continue;
    const auto to = static_cast<std::size_t>(edge.to);
    if (enters) last = std::max(last, to);
    if (leaves) reader = std::min(reader.value_or(to), to);
  }
  if (reader && *reader < last) {
    return no_layers(
        "expected gradients of layers that nothing needs before all steps have theirs");
  }
  for (const std::size_t function : stack.functions) gone_.insert(at(function).evaluate);
  backward_at_[at(last).evaluate] = index;
  return check_gradients(stack);
}

// A gradient has the sizes of what it is the gradient of; those of weights may be turned.
Result<void> StackCopy::check_gradients(const StackOfLayers& stack) const {
  const auto have_one_shape = [&](std::uint32_t a, std::optional<std::uint32_t> b) {
    return b && std::ranges::equal(source_.shape(source_.tensors[a]),
                                   source_.shape(source_.tensors[*b]));
  };
  const auto odd = [&](std::int32_t of) {
    return no_layers(
        fmt::format("expected a gradient of the sizes of its tensor, found another at {} (node {})",
                    source_.name(of), source_.node(of).id));
  };
  const auto taken = incoming(stack);
  if (!taken) {
    return no_layers(
        fmt::format("expected the gradient of the layers' result, found none at {} (node {})",
                    source_.name(stack.joined), source_.node(stack.joined).id));
  }
  if (!have_one_shape(*taken, tensor_at(source_.outputs(stack.joined), 0))) {
    return odd(stack.joined);
  }
  for (const Leaving& one : leaving(stack)) {
    if (one.of == stack.sequence &&
        !have_one_shape(one.tensor, tensor_at(source_.inputs(stack.sequence), 0))) {
      return odd(one.of);
    }
  }
  return {};
}

std::int64_t StackCopy::input_dimension(const StackOfLayers& stack) const {
  return dimension_of(source_, source_.node(stack.sequence));
}
std::int64_t StackCopy::output_dimension(const StackOfLayers& stack) const {
  return dimension_of(source_, source_.node(stack.joined));
}

std::optional<std::uint32_t> StackCopy::incoming(const StackOfLayers& stack) const {
  std::optional<std::uint32_t> gradient;
  for (const std::size_t function : stack.functions) {
    if (gone_above(at(function).forward) != stack.joined) continue;
    gradient = tensor_at(source_.inputs(at(function).function), 0);
  }
  return gradient;
}

std::vector<StackCopy::Leaving> StackCopy::leaving(const StackOfLayers& stack) const {
  const std::set<std::size_t> own(stack.functions.begin(), stack.functions.end());
  std::map<std::int32_t, Leaving> by_taker;
  for (const GradientEdge& edge : pass_.edges) {
    if (edge.from < 0 || !own.contains(static_cast<std::size_t>(edge.from))) continue;
    if (own.contains(static_cast<std::size_t>(edge.to))) continue;
    std::uint32_t taken = edge.tensor;
    if (edge.sum >= 0) taken = tensor_at(source_.outputs(edge.sum), 0).value_or(taken);
    by_taker[edge.to] = {.to = edge.to,
                         .of = gone_above(at(static_cast<std::size_t>(edge.from)).forward),
                         .tensor = taken,
                         .accumulates = at(static_cast<std::size_t>(edge.to)).accumulates()};
  }
  std::vector<Leaving> found;
  for (const auto& [to, one] : by_taker) found.push_back(one);
  return found;
}

}  // namespace perfmodel
