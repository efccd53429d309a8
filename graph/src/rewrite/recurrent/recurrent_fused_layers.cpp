#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "builders/emit/dropout.hpp"
#include "builders/emit/graph_reduction.hpp"
#include "builders/emit/graph_views.hpp"
#include "builders/emit/matmul.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/pointwise.hpp"
#include "recurrent_stacks.hpp"

namespace perfmodel {
namespace {

using CellKind = UnfusedCell::Kind;

std::int64_t gates_of(CellKind kind) {
  return kind == CellKind::kLstm ? 4 : kind == CellKind::kGru ? 3 : 1;
}

// A matrix of features and columns, a column per sample and step: [columns, features] in the
// batch-major layout, [features, columns] in the hidden-major one.
class LayoutOps {
 public:
  LayoutOps(GraphBuilder& graph, RecurrentLayout layout)
      : graph_(graph), features_first_(layout == RecurrentLayout::kHiddenMajor) {}

  bool features_first() const { return features_first_; }

  TensorRef empty_matrix(DType dtype, std::int64_t features, std::int64_t columns) {
    return empty(graph_, dtype,
                 features_first_ ? Shape{features, columns} : Shape{columns, features});
  }

  TensorRef columns(TensorRef x, std::int64_t begin, std::int64_t count) {
    return narrow(graph_, x, features_first_ ? 1 : 0, begin, count);
  }

  // weight [G, K] x. In the batch-major layout the product adds the bias; in the other one it would
  // be one number per row, which no library's epilogue adds, so the cell does.
  TensorRef product(TensorRef x, TensorRef weight, TensorRef bias, std::int64_t sequence) {
    if (features_first_) return mm(graph_, weight, x, sequence);
    const TensorRef turned = t(graph_, weight);
    return bias.exists() ? addmm(graph_, bias, x, turned, sequence)
                         : mm(graph_, x, turned, sequence);
  }

  TensorRef input_gradient(TensorRef gates, TensorRef weight) {
    return features_first_ ? mm(graph_, t(graph_, weight), gates) : mm(graph_, gates, weight);
  }

  // Into `made` [G, K], summed over all columns.
  void weight_gradient(TensorRef gates, TensorRef x, TensorRef made) {
    if (features_first_) {
      graph_.leaf_op("aten::mm", {gates, t(graph_, x)}, {made});
    } else {
      graph_.leaf_op("aten::mm", {t(graph_, gates), x}, {made});
    }
  }

  TensorRef sum_of_columns(TensorRef gates) {
    return sum(graph_, gates, {features_first_ ? 1 : 0}, true);
  }

 private:
  GraphBuilder& graph_;
  bool features_first_;
};

// Copies the graph with stacks of layers written layer after layer: one product of the inputs of
// all steps, per step the product of the state and one pointwise kernel; in the backward pass per
// step one pointwise kernel and the product that hands on the gradient, per layer one product for
// each weight and for the inputs.
class FusedLayersWriter {
 public:
  FusedLayersWriter(const ExecutionGraph& graph, const BackwardPass& pass,
                    const UnfusedCells& found, std::vector<StackOfLayers> stacks,
                    RecurrentLayout layout)
      : copy_(graph, pass, found, std::move(stacks)),
        builder_(copy_.builder()),
        ops_(builder_, layout),
        written_(copy_.stacks().size()) {}

  Result<ExecutionGraph> write() {
    return copy_.write([this](std::size_t index) { forward(index); },
                       [this](std::size_t index) { backward(index); });
  }

 private:
  struct Step {
    TensorRef hidden, memory, workspace;
    std::int64_t product_sequence = -1, cell_sequence = -1;
  };
  struct WrittenLayer {
    TensorRef x, y;              // all columns
    TensorRef state, memory;     // before the first step
    TensorRef input, recurrent;  // weights, [G, K]
    TensorRef mask;              // of the dropout behind it
    bool begins_with_zeros = true;
    std::int64_t sequence = -1;
    std::vector<Step> steps;
  };
  struct WrittenStack {
    std::int64_t steps = 0, batch = 0, hidden = 0;
    DType dtype = DType::kFloat32;
    CellKind kind = CellKind::kLstm;
    std::string activation;
    std::vector<WrittenLayer> layers;
    std::int64_t columns() const { return steps * batch; }
    std::int64_t gates() const { return gates_of(kind) * hidden; }
  };

  TensorRef tensor(std::uint32_t entry) { return copy_.tensor(entry); }
  const ExecutionGraph& source() const { return copy_.source(); }

  // --- numbers of autograd: those of the ops that are gone, in their order ----------------------

  void collect_numbers(const StackOfLayers& stack) {
    std::set<std::int64_t> numbers;
    const auto take = [&](std::int32_t root) {
      if (source().node(root).seq_id >= 0) numbers.insert(source().node(root).seq_id);
    };
    for (const LayerOfCells& layer : stack.layers) {
      for (std::size_t step = 0; step < layer.cells.size(); ++step) {
        std::ranges::for_each(layer.cells[step]->roots, take);
        take(layer.inputs[step]->root);
        take(layer.states[step]->root);
      }
    }
    take(stack.joined);
    numbers_.assign(numbers.begin(), numbers.end());
    next_number_ = 0;
  }
  std::int64_t next_number() {
    return next_number_ < numbers_.size() ? numbers_[next_number_++] : -1;
  }

  // --- forward ----------------------------------------------------------------------------------

  void forward(std::size_t index) {
    const StackOfLayers& stack = copy_.stacks()[index];
    collect_numbers(stack);
    WrittenStack& made = written_[index];
    const Shape state = builder_.shape(tensor(stack.first().hidden));
    made = {.steps = std::ssize(stack.layers.front().cells),
            .batch = state.front(),
            .hidden = state.back(),
            .dtype = builder_.dtype(tensor(stack.first().hidden)),
            .kind = stack.first().kind,
            .activation = stack.first().activation,
            .layers = {}};
    const TensorRef sequence = tensor(*tensor_at(source().inputs(stack.sequence), 0));
    TensorRef x = columns_of(sequence, copy_.input_dimension(stack));
    for (std::size_t layer = 0; layer < stack.layers.size(); ++layer) {
      const bool top = layer + 1 == stack.layers.size();
      WrittenLayer& one = made.layers.emplace_back();
      one.x = x;
      one.y = top && !has_copy_behind(stack)
                  ? as_matrix(result_of(stack))
                  : ops_.empty_matrix(made.dtype, made.hidden, made.columns());
      if (top && !has_copy_behind(stack)) empty_into(builder_, one.y);
      write_layer(stack.layers[layer], made, one);
      x = one.y;
      if (!top && stack.dropout > 0) {
        const Dropped dropped = native_dropout(builder_, one.y, stack.dropout, next_number());
        one.mask = dropped.mask;
        x = dropped.out;
      }
    }
    if (has_copy_behind(stack)) {
      columns_into(made.layers.back().y, result_of(stack), copy_.output_dimension(stack));
    }
  }

  TensorRef result_of(const StackOfLayers& stack) {
    return tensor(*tensor_at(source().outputs(stack.joined), 0));
  }

  // The result is written in place unless its axes stand in another order.
  bool has_copy_behind(const StackOfLayers& stack) const {
    return ops_.features_first() || copy_.output_dimension(stack) != 0;
  }

  // [T, B, F] as [T B, F], the same memory.
  TensorRef as_matrix(TensorRef x) {
    const Shape shape = builder_.shape(x);
    return contiguous_view(builder_, x, {shape[0] * shape[1], shape[2]});
  }

  // A sequence [T, B, F], or [B, T, F] with the steps along dimension 1, as the layers take it.
  TensorRef columns_of(TensorRef x, std::int64_t steps_along) {
    const Shape shape = builder_.shape(x);
    if (!ops_.features_first() && steps_along == 0) {
      return view(builder_, x, {shape[0] * shape[1], shape[2]});
    }
    const TensorRef turned = steps_along == 0 ? x : transpose(builder_, x, 0, 1);
    const TensorRef ordered = ops_.features_first() ? permute(builder_, turned, {2, 0, 1}) : turned;
    const TensorRef copied = clone(builder_, ordered);
    const Shape by = builder_.shape(copied);
    return view(builder_, copied,
                ops_.features_first() ? Shape{by[0], by[1] * by[2]} : Shape{by[0] * by[1], by[2]});
  }

  // The way back, into a tensor that the graph has.
  void columns_into(TensorRef x, TensorRef made, std::int64_t steps_along) {
    const Shape shape = builder_.shape(made);
    const std::int64_t steps = shape[steps_along], batch = shape[1 - steps_along];
    TensorRef ordered =
        ops_.features_first()
            ? permute(builder_, view(builder_, x, {shape[2], steps, batch}), {1, 2, 0})
            : view(builder_, x, {steps, batch, shape[2]});
    if (steps_along == 1) ordered = transpose(builder_, ordered, 0, 1);
    builder_.begin_op("aten::clone", {ordered, 0});
    allocate_like(builder_, made, ordered);
    copy(builder_, made, ordered);
    builder_.end_op({made});
  }

  // [G, K], whichever way the weight lies.
  TensorRef weight_of(const CellProduct& product, std::int64_t gates) {
    const TensorRef weight = tensor(product.weight);
    return builder_.shape(weight).front() == gates ? weight : t(builder_, weight);
  }

  TensorRef bias_of(const CellProduct& product) {
    return product.bias ? tensor(*product.bias) : TensorRef{};
  }

  void write_layer(const LayerOfCells& layer, const WrittenStack& stack, WrittenLayer& made) {
    made.input = weight_of(*layer.inputs[0], stack.gates());
    made.recurrent = weight_of(*layer.states[0], stack.gates());
    write_first_states(layer, stack, made);
    const TensorRef input_bias = bias_of(*layer.inputs[0]), bias = bias_of(*layer.states[0]);
    made.sequence = next_number();
    const TensorRef x_gates = ops_.product(made.x, made.input, input_bias, made.sequence);
    TensorRef hidden = made.state, memory = made.memory;
    for (std::int64_t i = 0; i < stack.steps; ++i) {
      Step& step = made.steps.emplace_back();
      step.product_sequence = next_number();
      const TensorRef h_gates = ops_.product(hidden, made.recurrent, bias, step.product_sequence);
      step.hidden = ops_.columns(made.y, i * stack.batch, stack.batch);
      step.cell_sequence = next_number();
      write_cell(stack, ops_.columns(x_gates, i * stack.batch, stack.batch), h_gates,
                 stack.kind == CellKind::kLstm ? memory : hidden, {input_bias, bias}, step);
      hidden = step.hidden;
      memory = step.memory;
    }
  }

  void write_first_states(const LayerOfCells& layer, const WrittenStack& stack,
                          WrittenLayer& made) {
    const std::int32_t root = layer.states[0]->input_root;
    made.begins_with_zeros = root >= 0 && copy_.is_gone(root);
    const Shape shape =
        ops_.features_first() ? Shape{stack.hidden, stack.batch} : Shape{stack.batch, stack.hidden};
    const auto first = [&](std::uint32_t entry) {
      if (made.begins_with_zeros) return zeros(builder_, stack.dtype, shape);
      const TensorRef given = tensor(entry);
      return ops_.features_first() ? clone(builder_, t(builder_, given)) : given;
    };
    made.state = first(layer.states[0]->input);
    if (stack.kind == CellKind::kLstm) made.memory = first(*layer.cells[0]->state);
  }

  // Biases: of the layout in which products do not add them.
  void write_cell(const WrittenStack& stack, TensorRef x_gates, TensorRef h_gates, TensorRef state,
                  std::array<TensorRef, 2> biases, Step& step) {
    if (!ops_.features_first()) biases = {};
    const auto or_none = [](TensorRef one) { return one.exists() ? Value(one) : Value(kNone); };
    if (stack.kind == CellKind::kPlain) {
      std::vector<Value> inputs = {x_gates, h_gates};
      for (const TensorRef bias : biases) {
        if (bias.exists()) inputs.emplace_back(bias);
      }
      inputs.emplace_back(builder_.numel(step.hidden));
      write_generated(builder_, stack.activation, inputs, step.hidden, step.cell_sequence);
      return;
    }
    const bool lstm = stack.kind == CellKind::kLstm;
    step.workspace = ops_.empty_matrix(stack.dtype, (lstm ? 4 : 5) * stack.hidden, stack.batch);
    std::vector<Value> outputs = {step.hidden};
    if (lstm) {
      step.memory = ops_.empty_matrix(stack.dtype, stack.hidden, stack.batch);
      outputs.emplace_back(step.memory);
    }
    outputs.emplace_back(step.workspace);
    builder_.leaf_op(lstm ? "aten::_thnn_fused_lstm_cell" : "aten::_thnn_fused_gru_cell",
                     {x_gates, h_gates, state, or_none(biases[0]), or_none(biases[1])}, outputs,
                     step.cell_sequence);
  }

  // --- backward ---------------------------------------------------------------------------------

  // Where the rest of the pass takes them; tensors of the source.
  struct LayerGradients {
    std::optional<std::uint32_t> input, recurrent, input_bias, bias;
  };
  struct StackGradients {
    std::vector<LayerGradients> layers;
    std::optional<std::uint32_t> sequence;
  };

  StackGradients wanted(const StackOfLayers& stack) const {
    StackGradients found;
    found.layers.resize(stack.layers.size());
    for (const StackCopy::Leaving& one : copy_.leaving(stack)) {
      if (one.of == stack.sequence) found.sequence = one.tensor;
      for (std::size_t layer = 0; layer < stack.layers.size(); ++layer) {
        const LayerOfCells& cells = stack.layers[layer];
        LayerGradients& of = found.layers[layer];
        for (std::size_t step = 0; step < cells.cells.size(); ++step) {
          const CellProduct &input = *cells.inputs[step], &state = *cells.states[step];
          if (one.of == input.root) {
            (numel(one.tensor) == numel(input.weight) ? of.input : of.input_bias) = one.tensor;
          } else if (one.of == state.root) {
            (numel(one.tensor) == numel(state.weight) ? of.recurrent : of.bias) = one.tensor;
          }
        }
      }
    }
    return found;
  }
  std::int64_t numel(std::uint32_t entry) const { return source().tensors[entry].numel; }

  void begin_function(const std::string& name, const std::vector<TensorRef>& gradients,
                      std::int64_t sequence) {
    builder_.begin_plain("autograd::engine::evaluate_function: " + name);
    builder_.begin_backward_function(name, gradients, sequence);
  }
  void end_function() {
    builder_.end_op();
    builder_.end_op();
  }

  void backward(std::size_t index) {
    const StackOfLayers& stack = copy_.stacks()[index];
    const WrittenStack& made = written_[index];
    const StackGradients wants = wanted(stack);
    const TensorRef incoming = tensor(*copy_.incoming(stack));
    begin_function("RecurrentLayersResultBackward", {incoming}, source().node(stack.joined).seq_id);
    TensorRef gradient = columns_of(incoming, copy_.output_dimension(stack));
    end_function();
    for (std::size_t layer = made.layers.size(); layer-- > 0;) {
      const bool hands_on = layer > 0 || wants.sequence.has_value();
      const TensorRef result = layer == 0 && wants.sequence && !has_copy_in_front(stack)
                                   ? as_matrix(tensor(*wants.sequence))
                                   : TensorRef{};
      gradient = backward_of_layer(made, made.layers[layer], gradient, wants.layers[layer],
                                   hands_on, result);
      if (layer > 0 && made.layers[layer - 1].mask.exists()) {
        begin_function("NativeDropoutBackward0", {gradient}, made.layers[layer].sequence);
        gradient =
            native_dropout_backward(builder_, gradient, made.layers[layer - 1].mask, stack.dropout);
        end_function();
      }
    }
    if (wants.sequence && has_copy_in_front(stack)) {
      begin_function("RecurrentLayersInputBackward", {gradient}, made.layers.front().sequence);
      columns_into(gradient, tensor(*wants.sequence), copy_.input_dimension(stack));
      end_function();
    }
  }

  bool has_copy_in_front(const StackOfLayers& stack) const {
    return ops_.features_first() || copy_.input_dimension(stack) != 0;
  }

  // Gives the gradient of the layer's inputs, in `result` if there is one.
  TensorRef backward_of_layer(const WrittenStack& stack, const WrittenLayer& layer,
                              TensorRef gradient, const LayerGradients& wants, bool hands_on,
                              TensorRef result) {
    const bool gru = stack.kind == CellKind::kGru;
    begin_function("RecurrentLayerGatesBackward", {gradient}, layer.sequence);
    const TensorRef gates = ops_.empty_matrix(stack.dtype, stack.gates(), stack.columns());
    // What a GRU resets counts in the gradient of the state's product alone.
    const TensorRef h_gates =
        gru ? ops_.empty_matrix(stack.dtype, stack.gates(), stack.columns()) : gates;
    end_function();
    TensorRef of_hidden, of_memory;
    for (std::int64_t i = stack.steps; i-- > 0;) {
      const auto part = [&](TensorRef all) {
        return ops_.columns(all, i * stack.batch, stack.batch);
      };
      const Step& step = layer.steps[i];
      begin_function(name_of_cell(stack), {gradient}, step.cell_sequence);
      TensorRef own = part(gradient);
      if (of_hidden.exists()) own = add(builder_, own, of_hidden);
      const TensorRef own_gates = part(gates), own_h_gates = gru ? part(h_gates) : own_gates;
      const TensorRef through =
          write_cell_backward(stack, layer, i, own, of_memory, own_gates, own_h_gates);
      end_function();
      if (i == 0) break;  // nobody asks for the gradient of the first state
      begin_function("RecurrentStepBackward", {own_h_gates}, step.product_sequence);
      of_hidden = ops_.input_gradient(own_h_gates, layer.recurrent);
      if (gru) of_hidden = add(builder_, of_hidden, through);
      end_function();
      of_memory = stack.kind == CellKind::kLstm ? through : TensorRef{};
    }
    begin_function("RecurrentLayerBackward", {gates}, layer.sequence);
    write_weight_gradients(stack, layer, gates, h_gates, wants);
    if (!hands_on) {
      gradient = {};
    } else if (result.exists()) {
      builder_.leaf_op("aten::mm", {gates, layer.input}, {result});
      gradient = result;
    } else {
      gradient = ops_.input_gradient(gates, layer.input);
    }
    end_function();
    return gradient;
  }

  static std::string name_of_cell(const WrittenStack& stack) {
    switch (stack.kind) {
      case CellKind::kLstm:
        return "ThnnFusedLstmCellBackward0";
      case CellKind::kGru:
        return "ThnnFusedGruCellBackward0";
      case CellKind::kPlain:
        break;
    }
    return stack.activation == "tanh" ? "TanhBackward0" : "ReluBackward0";
  }

  // Gives the gradient that goes past the product: of c, or of h through a GRU's z.
  TensorRef write_cell_backward(const WrittenStack& stack, const WrittenLayer& layer,
                                std::int64_t i, TensorRef of_hidden, TensorRef of_memory,
                                TensorRef gates, TensorRef h_gates) {
    const Step& step = layer.steps[i];
    if (stack.kind == CellKind::kPlain) {
      if (stack.activation == "tanh") {
        builder_.leaf_op("aten::tanh_backward", {of_hidden, step.hidden}, {gates});
      } else {
        builder_.leaf_op("aten::threshold_backward", {of_hidden, step.hidden, 0}, {gates});
      }
      return {};
    }
    const TensorRef through = ops_.empty_matrix(stack.dtype, stack.hidden, stack.batch);
    if (stack.kind == CellKind::kGru) {
      builder_.leaf_op("aten::_thnn_fused_gru_cell_backward", {of_hidden, step.workspace, false},
                       {gates, h_gates, through, builder_.undefined(), builder_.undefined()});
      return through;
    }
    const TensorRef before = i > 0 ? layer.steps[i - 1].memory : layer.memory;
    builder_.leaf_op("aten::_thnn_fused_lstm_cell_backward_impl",
                     {of_hidden, of_memory.exists() ? of_memory : builder_.undefined(), before,
                      step.memory, step.workspace, false},
                     {gates, through, builder_.undefined()});
    return through;
  }

  // [G, K] in the place of the source's gradient, which may be turned.
  TensorRef place_of(std::uint32_t entry, TensorRef weight) {
    const TensorRef made = tensor(entry);
    if (builder_.shape(made) == builder_.shape(weight)) return made;
    return contiguous_view(builder_, made, builder_.shape(weight));
  }

  void write_weight_gradients(const WrittenStack& stack, const WrittenLayer& layer, TensorRef gates,
                              TensorRef h_gates, const LayerGradients& wants) {
    if (wants.input) {
      ops_.weight_gradient(gates, layer.x, place_of(*wants.input, layer.input));
    }
    if (wants.recurrent) {
      const auto [sums, states] = steps_with_state(stack, layer, h_gates);
      ops_.weight_gradient(sums, states, place_of(*wants.recurrent, layer.recurrent));
    }
    for (const auto& [entry, of] :
         {std::pair(wants.input_bias, gates), std::pair(wants.bias, h_gates)}) {
      if (!entry) continue;
      const TensorRef summed = ops_.sum_of_columns(of);
      builder_.leaf_op("aten::view", {summed, Shape{stack.gates()}}, {tensor(*entry)});
    }
  }

  // Gradients of the gates beside the states that the steps began with: of all steps but the first,
  // whose state is zero; a first state that is given goes in front of the others.
  std::pair<TensorRef, TensorRef> steps_with_state(const WrittenStack& stack,
                                                   const WrittenLayer& layer, TensorRef h_gates) {
    const std::int64_t rest = stack.columns() - stack.batch;
    const TensorRef states = ops_.columns(layer.y, 0, rest);
    if (layer.begins_with_zeros) return {ops_.columns(h_gates, stack.batch, rest), states};
    const TensorRef all = ops_.empty_matrix(stack.dtype, stack.hidden, stack.columns());
    builder_.leaf_op("aten::cat", {std::vector{layer.state, states}, ops_.features_first() ? 1 : 0},
                     {all});
    return {h_gates, all};
  }

  StackCopy copy_;
  GraphBuilder& builder_;
  LayoutOps ops_;
  std::vector<WrittenStack> written_;
  std::vector<std::int64_t> numbers_;
  std::size_t next_number_ = 0;
};

}  // namespace

void write_generated(GraphBuilder& builder, const std::string& activation,
                     const std::vector<Value>& inputs, TensorRef made, std::int64_t sequence) {
  builder.begin_plain(fmt::format("triton_poi_fused_add_{}_0", activation), {}, sequence);
  const auto [begin, count] = builder.append(inputs);
  const auto [made_begin, made_count] = builder.append({made});
  ExecutionGraph& graph = builder.graph_being_made();
  Node& op = graph.nodes.back();
  op.kernel_backend = graph.names.intern("triton");
  op.inputs_begin = begin;
  op.inputs_count = count;
  op.outputs_begin = made_begin;
  op.outputs_count = made_count;
  builder.close();
}

Result<ExecutionGraph> write_fused_layers(const ExecutionGraph& graph, const BackwardPass& pass,
                                          const UnfusedCells& found,
                                          std::vector<StackOfLayers> stacks,
                                          RecurrentLayout layout) {
  return FusedLayersWriter(graph, pass, found, std::move(stacks), layout).write();
}

}  // namespace perfmodel
