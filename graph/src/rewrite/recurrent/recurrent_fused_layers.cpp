#include <fmt/format.h>

#include <algorithm>
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

  // Into the memory of `made` [G].
  void sum_of_columns(TensorRef gates, TensorRef made) {
    const std::int64_t count = graph_.numel(made);
    const TensorRef sums =
        contiguous_view(graph_, made, features_first_ ? Shape{count, 1} : Shape{1, count});
    graph_.leaf_op("aten::sum", {gates, Shape{features_first_ ? 1 : 0}, true, kNone}, {sums});
    graph_.leaf_op("aten::view", {sums, graph_.shape(made)}, {made});
  }

  // [T, B, F] as [T B, F], the same memory.
  TensorRef as_matrix(TensorRef x) {
    const Shape shape = graph_.shape(x);
    return contiguous_view(graph_, x, {shape[0] * shape[1], shape[2]});
  }

  // A sequence [T, B, F], or [B, T, F] with the steps along dimension 1, as the layers take it.
  TensorRef columns_of(TensorRef x, std::int64_t steps_along) {
    const Shape shape = graph_.shape(x);
    if (!features_first_ && steps_along == 0) {
      return view(graph_, x, {shape[0] * shape[1], shape[2]});
    }
    const TensorRef turned = steps_along == 0 ? x : transpose(graph_, x, 0, 1);
    const TensorRef ordered = features_first_ ? permute(graph_, turned, {2, 0, 1}) : turned;
    const TensorRef copied = clone(graph_, ordered);
    const Shape by = graph_.shape(copied);
    return view(graph_, copied,
                features_first_ ? Shape{by[0], by[1] * by[2]} : Shape{by[0] * by[1], by[2]});
  }

  // The way back, into a tensor that the graph has.
  void columns_into(TensorRef x, TensorRef made, std::int64_t steps_along) {
    const Shape shape = graph_.shape(made);
    const std::int64_t steps = shape[steps_along], batch = shape[1 - steps_along];
    TensorRef ordered = features_first_
                            ? permute(graph_, view(graph_, x, {shape[2], steps, batch}), {1, 2, 0})
                            : view(graph_, x, {steps, batch, shape[2]});
    if (steps_along == 1) ordered = transpose(graph_, ordered, 0, 1);
    graph_.begin_op("aten::clone", {ordered, 0});
    allocate_like(graph_, made, ordered);
    copy(graph_, made, ordered);
    graph_.end_op({made});
  }

 private:
  GraphBuilder& graph_;
  bool features_first_;
};

using Entry = std::optional<std::uint32_t>;  // into ExecutionGraph::tensors

// Gradients that the rest of the pass takes; tensors of the source.
struct LayerGradients {
  Entry input, recurrent, input_bias, bias;
};

std::pair<std::vector<LayerGradients>, Entry> wanted_gradients(const ExecutionGraph& graph,
                                                               const StackOfLayers& stack) {
  const auto numel = [&](std::uint32_t entry) { return graph.tensors[entry].numel; };
  std::vector<LayerGradients> found(stack.layers.size());
  Entry of_sequence;
  for (const StackOfLayers::Gradient& one : stack.outgoing) {
    if (one.op == stack.sequence) of_sequence = one.tensor;
    const auto take = [&](const CellProduct& product, Entry& weight, Entry& bias) {
      if (one.op != product.op) return;
      (numel(one.tensor) == numel(product.weight->tensor) ? weight : bias) = one.tensor;
    };
    for (std::size_t layer = 0; layer < found.size(); ++layer) {
      for (std::size_t step = 0; step < stack.layers[layer].cells.size(); ++step) {
        take(*stack.layers[layer].inputs[step], found[layer].input, found[layer].input_bias);
        take(*stack.layers[layer].states[step], found[layer].recurrent, found[layer].bias);
      }
    }
  }
  return {found, of_sequence};
}

// The new ops take autograd's numbers from the ops that are gone, in their order.
std::vector<std::int64_t> numbers_of(const ExecutionGraph& graph, const StackOfLayers& stack) {
  std::set<std::int64_t> numbers = {graph.node(stack.joined).seq_id};
  for (const LayerOfCells& layer : stack.layers) {
    for (std::size_t step = 0; step < layer.cells.size(); ++step) {
      numbers.insert(
          {graph.node(layer.inputs[step]->op).seq_id, graph.node(layer.states[step]->op).seq_id});
      for (const std::int32_t op : layer.cells[step]->ops) {
        numbers.insert(graph.node(op).seq_id);
      }
    }
  }
  numbers.erase(numbers.begin(), numbers.lower_bound(0));
  return {numbers.begin(), numbers.end()};
}

void begin_function(GraphBuilder& builder, const std::string& name,
                    const std::vector<TensorRef>& gradients, std::int64_t sequence) {
  builder.begin_plain("autograd::engine::evaluate_function: " + name);
  builder.begin_backward_function(name, gradients, sequence);
}
void end_function(GraphBuilder& builder) {
  builder.end_op();
  builder.end_op();
}

// A stack of layers layer after layer: one product of the inputs of all steps, per step the product
// of the state and one pointwise kernel; in the backward pass per step one pointwise kernel and the
// product that hands on the gradient, per layer one product for each weight and for the inputs.
class FusedStack {
 public:
  FusedStack(GraphEdit& edit, const StacksOfLayers& found, const StackOfLayers& stack,
             RecurrentLayout layout)
      : builder_(edit.builder()),
        source_(edit.source()),
        found_(found),
        stack_(stack),
        ops_(builder_, layout),
        kind_(stack.first().kind),
        numbers_(numbers_of(source_, stack)) {}

  void forward() {
    const TensorRef state = tensor(stack_.first().hidden->tensor);
    dtype_ = builder_.dtype(state);
    batch_ = builder_.shape(state).front();
    hidden_ = builder_.shape(state).back();
    steps_ = std::ssize(stack_.layers.front().cells);
    TensorRef x = ops_.columns_of(tensor(stack_.input), stack_.input_dimension);
    for (const LayerOfCells& layer : stack_.layers) {
      const bool is_top = &layer == &stack_.layers.back();
      WrittenLayer& one = layers_.emplace_back();
      one.x = x;
      one.y = is_top && !is_result_copied() ? ops_.as_matrix(tensor(stack_.output))
                                            : ops_.empty_matrix(dtype_, hidden_, columns());
      if (is_top && !is_result_copied()) {
        empty_into(builder_, one.y);
        view_as_source(one.y, stack_.output);
      }
      write_layer(layer, one);
      x = one.y;
      if (is_top || stack_.dropout <= 0) continue;
      const Dropped dropped = native_dropout(builder_, one.y, stack_.dropout, next_number());
      one.mask = dropped.mask;
      x = dropped.out;
    }
    if (is_result_copied()) {
      ops_.columns_into(x, tensor(stack_.output), stack_.output_dimension);
    }
  }

  void backward() {
    const auto [wanted, of_sequence] = wanted_gradients(source_, stack_);
    const TensorRef incoming = tensor(stack_.incoming);
    begin_function(builder_, "RecurrentLayersResultBackward", {incoming},
                   source_.node(stack_.joined).seq_id);
    TensorRef gradient = ops_.columns_of(incoming, stack_.output_dimension);
    end_function(builder_);
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const TensorRef sums = write_gates_backward(layers_[i], gradient);
      begin_function(builder_, "RecurrentLayerBackward", {layers_[i].gates_gradient},
                     layers_[i].sequence);
      write_weight_gradients(layers_[i], sums, wanted[i]);
      if (i > 0 || (of_sequence && is_input_copied())) {
        gradient = ops_.input_gradient(layers_[i].gates_gradient, layers_[i].input);
      } else if (of_sequence) {
        const TensorRef made = ops_.as_matrix(tensor(*of_sequence));
        builder_.leaf_op("aten::mm", {layers_[i].gates_gradient, layers_[i].input}, {made});
        view_as_source(made, *of_sequence);
      }
      end_function(builder_);
      if (i == 0 || !layers_[i - 1].mask.exists()) continue;
      begin_function(builder_, "NativeDropoutBackward0", {gradient}, layers_[i].sequence);
      gradient = native_dropout_backward(builder_, gradient, layers_[i - 1].mask, stack_.dropout);
      end_function(builder_);
    }
    if (!of_sequence || !is_input_copied()) return;
    begin_function(builder_, "RecurrentLayersInputBackward", {gradient}, layers_.front().sequence);
    ops_.columns_into(gradient, tensor(*of_sequence), stack_.input_dimension);
    end_function(builder_);
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
    TensorRef mask;              // dropout's, after the layer
    bool begins_with_zeros = true;
    std::int64_t sequence = -1;
    std::vector<Step> steps = {};
    TensorRef gates_gradient;
  };

  TensorRef tensor(std::uint32_t entry) { return builder_.tensor_of_source(entry); }
  std::int64_t columns() const { return steps_ * batch_; }
  std::int64_t gates() const { return gates_of(kind_) * hidden_; }
  std::int64_t next_number() {
    return next_number_ < numbers_.size() ? numbers_[next_number_++] : -1;
  }

  // Sequences are copied unless their axes are in the order of the layers.
  bool is_input_copied() const { return ops_.features_first() || stack_.input_dimension != 0; }
  bool is_result_copied() const { return ops_.features_first() || stack_.output_dimension != 0; }

  // [G, K], also of a weight that is turned.
  TensorRef weight_of(const CellProduct& product) {
    const TensorRef weight = tensor(product.weight->tensor);
    return builder_.shape(weight).front() == gates() ? weight : t(builder_, weight);
  }
  TensorRef bias_of(const CellProduct& product) {
    return product.bias ? tensor(product.bias->tensor) : TensorRef{};
  }

  void write_layer(const LayerOfCells& layer, WrittenLayer& made) {
    made.input = weight_of(*layer.inputs[0]);
    made.recurrent = weight_of(*layer.states[0]);
    write_first_states(layer, made);
    const TensorRef input_bias = bias_of(*layer.inputs[0]), bias = bias_of(*layer.states[0]);
    made.sequence = next_number();
    const TensorRef x_gates = ops_.product(made.x, made.input, input_bias, made.sequence);
    TensorRef hidden = made.state, memory = made.memory;
    for (std::int64_t i = 0; i < steps_; ++i) {
      Step& step = made.steps.emplace_back();
      step.product_sequence = next_number();
      const TensorRef h_gates = ops_.product(hidden, made.recurrent, bias, step.product_sequence);
      step.hidden = ops_.columns(made.y, i * batch_, batch_);
      step.cell_sequence = next_number();
      std::vector<TensorRef> biases;  // for the layout in which products do not add them
      if (ops_.features_first()) biases = {input_bias, bias};
      write_cell(ops_.columns(x_gates, i * batch_, batch_), h_gates,
                 kind_ == CellKind::kLstm ? memory : hidden, biases, step);
      hidden = step.hidden;
      memory = step.memory;
    }
  }

  void write_first_states(const LayerOfCells& layer, WrittenLayer& made) {
    const Version& given = *layer.states[0]->input;
    made.begins_with_zeros = given.op >= 0 && found_.nodes.contains(given.op);
    const auto first = [&](const Version& state) {
      if (made.begins_with_zeros) {
        return zeros(builder_, dtype_,
                     ops_.features_first() ? Shape{hidden_, batch_} : Shape{batch_, hidden_});
      }
      const TensorRef one = tensor(state.tensor);
      return ops_.features_first() ? clone(builder_, t(builder_, one)) : one;
    };
    made.state = first(given);
    if (kind_ == CellKind::kLstm) made.memory = first(*layer.cells[0]->state);
  }

  void write_cell(TensorRef x_gates, TensorRef h_gates, TensorRef state,
                  std::vector<TensorRef> biases, Step& step) {
    std::vector<Value> inputs = {x_gates, h_gates};
    if (kind_ == CellKind::kPlain) {
      std::erase_if(biases, [](TensorRef bias) { return !bias.exists(); });
      inputs.insert(inputs.end(), biases.begin(), biases.end());
      inputs.emplace_back(builder_.numel(step.hidden));
      write_generated(builder_, stack_.first().activation, inputs, step.hidden, step.cell_sequence);
      return;
    }
    const bool is_lstm = kind_ == CellKind::kLstm;
    step.workspace = ops_.empty_matrix(dtype_, (is_lstm ? 4 : 5) * hidden_, batch_);
    std::vector<Value> outputs = {step.hidden};
    if (is_lstm) {
      step.memory = ops_.empty_matrix(dtype_, hidden_, batch_);
      outputs.emplace_back(step.memory);
    }
    outputs.emplace_back(step.workspace);
    inputs.emplace_back(state);
    biases.resize(2);
    for (const TensorRef bias : biases) inputs.push_back(bias.exists() ? Value(bias) : kNone);
    builder_.leaf_op(is_lstm ? "aten::_thnn_fused_lstm_cell" : "aten::_thnn_fused_gru_cell", inputs,
                     outputs, step.cell_sequence);
  }

  // --- backward ---------------------------------------------------------------------------------

  // Gives the gradient of the state's products, which in a GRU counts what is reset.
  TensorRef write_gates_backward(WrittenLayer& layer, TensorRef gradient) {
    const bool is_gru = kind_ == CellKind::kGru;
    begin_function(builder_, "RecurrentLayerGatesBackward", {gradient}, layer.sequence);
    const TensorRef gates = ops_.empty_matrix(dtype_, this->gates(), columns());
    const TensorRef h_gates = is_gru ? ops_.empty_matrix(dtype_, this->gates(), columns()) : gates;
    end_function(builder_);
    TensorRef of_hidden, of_memory;
    for (std::int64_t i = steps_; i-- > 0;) {
      const auto part = [&](TensorRef all) { return ops_.columns(all, i * batch_, batch_); };
      begin_function(builder_, name_of_cell(), {gradient}, layer.steps[i].cell_sequence);
      TensorRef own = part(gradient);
      if (of_hidden.exists()) own = add(builder_, own, of_hidden);
      const TensorRef own_gates = part(gates), own_h_gates = is_gru ? part(h_gates) : own_gates;
      const TensorRef past = write_cell_backward(layer, i, own, of_memory, own_gates, own_h_gates);
      end_function(builder_);
      if (i == 0) break;  // the gradient of the first state is not needed
      begin_function(builder_, "RecurrentStepBackward", {own_h_gates},
                     layer.steps[i].product_sequence);
      of_hidden = ops_.input_gradient(own_h_gates, layer.recurrent);
      if (is_gru) of_hidden = add(builder_, of_hidden, past);
      end_function(builder_);
      of_memory = kind_ == CellKind::kLstm ? past : TensorRef{};
    }
    layer.gates_gradient = gates;
    return h_gates;
  }

  std::string name_of_cell() const {
    if (kind_ == CellKind::kLstm) return "ThnnFusedLstmCellBackward0";
    if (kind_ == CellKind::kGru) return "ThnnFusedGruCellBackward0";
    return stack_.first().activation == "tanh" ? "TanhBackward0" : "ReluBackward0";
  }

  // Gives the gradient that goes past the product: of c, or of h through a GRU's z.
  TensorRef write_cell_backward(const WrittenLayer& layer, std::int64_t i, TensorRef of_hidden,
                                TensorRef of_memory, TensorRef gates, TensorRef h_gates) {
    const Step& step = layer.steps[i];
    if (kind_ == CellKind::kPlain) {
      if (stack_.first().activation == "tanh") {
        builder_.leaf_op("aten::tanh_backward", {of_hidden, step.hidden}, {gates});
      } else {
        builder_.leaf_op("aten::threshold_backward", {of_hidden, step.hidden, 0}, {gates});
      }
      return {};
    }
    const TensorRef past = ops_.empty_matrix(dtype_, hidden_, batch_);
    if (kind_ == CellKind::kGru) {
      builder_.leaf_op("aten::_thnn_fused_gru_cell_backward", {of_hidden, step.workspace, false},
                       {gates, h_gates, past, builder_.undefined(), builder_.undefined()});
      return past;
    }
    const TensorRef before = i > 0 ? layer.steps[i - 1].memory : layer.memory;
    builder_.leaf_op("aten::_thnn_fused_lstm_cell_backward_impl",
                     {of_hidden, of_memory.exists() ? of_memory : builder_.undefined(), before,
                      step.memory, step.workspace, false},
                     {gates, past, builder_.undefined()});
    return past;
  }

  // Gives a tensor of the source, in whose memory `made` is.
  void view_as_source(TensorRef made, std::uint32_t entry) {
    const TensorRef wanted = tensor(entry);
    builder_.leaf_op("aten::view", {made, builder_.shape(wanted)}, {wanted});
  }

  // [G, K], in the memory of the source's gradient, which may be turned.
  void write_weight_gradient(TensorRef gates, TensorRef x, std::uint32_t entry, TensorRef weight) {
    const TensorRef wanted = tensor(entry);
    if (builder_.shape(wanted) == builder_.shape(weight)) {
      ops_.weight_gradient(gates, x, wanted);
      return;
    }
    const TensorRef made = contiguous_view(builder_, wanted, builder_.shape(weight));
    ops_.weight_gradient(gates, x, made);
    view_as_source(made, entry);
  }

  void write_weight_gradients(const WrittenLayer& layer, TensorRef h_gates,
                              const LayerGradients& wanted) {
    if (wanted.input) {
      write_weight_gradient(layer.gates_gradient, layer.x, *wanted.input, layer.input);
    }
    if (wanted.recurrent) {
      const auto [sums, states] = steps_with_state(layer, h_gates);
      write_weight_gradient(sums, states, *wanted.recurrent, layer.recurrent);
    }
    for (const auto& [entry, of] :
         {std::pair(wanted.input_bias, layer.gates_gradient), std::pair(wanted.bias, h_gates)}) {
      if (entry) ops_.sum_of_columns(of, tensor(*entry));
    }
  }

  // Gradients of the gates and the states that the steps began with. The first step is left out, as
  // its state is zero, unless a first state was given, which goes in front.
  std::pair<TensorRef, TensorRef> steps_with_state(const WrittenLayer& layer, TensorRef h_gates) {
    const std::int64_t rest = columns() - batch_;
    const TensorRef states = ops_.columns(layer.y, 0, rest);
    if (layer.begins_with_zeros) return {ops_.columns(h_gates, batch_, rest), states};
    const TensorRef all = ops_.empty_matrix(dtype_, hidden_, columns());
    builder_.leaf_op("aten::cat", {std::vector{layer.state, states}, ops_.features_first() ? 1 : 0},
                     {all});
    return {h_gates, all};
  }

  GraphBuilder& builder_;
  const ExecutionGraph& source_;
  const StacksOfLayers& found_;
  const StackOfLayers& stack_;
  LayoutOps ops_;
  CellKind kind_;
  DType dtype_ = DType::kFloat32;
  std::int64_t steps_ = 0, batch_ = 0, hidden_ = 0;
  std::vector<WrittenLayer> layers_;
  std::vector<std::int64_t> numbers_;
  std::size_t next_number_ = 0;
};

}  // namespace

void write_generated(GraphBuilder& builder, std::string_view activation,
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

ExecutionGraph write_fused_layers(const StepView& step, const StacksOfLayers& found,
                                  RecurrentLayout layout) {
  GraphEdit edit(step.graph());
  std::vector<FusedStack> fused;
  for (const StackOfLayers& stack : found.stacks) fused.emplace_back(edit, found, stack, layout);
  return write_in_place_of(
      found, edit, [&](std::size_t i) { fused[i].forward(); },
      [&](std::size_t i) { fused[i].backward(); });
}

}  // namespace perfmodel
