#include <algorithm>
#include <memory>
#include <utility>

#include "concat.hpp"
#include "dropout.hpp"
#include "matmul.hpp"
#include "memory.hpp"
#include "recurrent.hpp"
#include "sequence.hpp"
#include "split.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// cuDNN's numbers of the cells.
int mode(RecurrentCell cell) { return cell == RecurrentCell::kLstm ? 2 : 3; }

// Random states of a V100 (80 SMs, 1,024 threads, 48 bytes); other GPUs differ. Nothing is priced
// by it.
constexpr std::int64_t kDropoutStateBytes = 80 * 1024 * 48;

std::vector<TensorRef> flat(const std::vector<CellWeights>& weights) {
  std::vector<TensorRef> all;
  for (const CellWeights& w : weights) {
    all.insert(all.end(), {w.input, w.hidden, w.input_bias, w.hidden_bias});
  }
  return all;
}

std::vector<Value> state_values(const CellState& state) {
  std::vector<Value> values = {state.hidden};
  if (state.memory.exists()) values.push_back(state.memory);
  return values;
}

// An empty tensor that is then pointed at (part of) another one's storage.
TensorRef point_at(GraphBuilder& graph, TensorRef storage, std::int64_t offset, Shape shape) {
  const TensorRef unset = empty(graph, graph.dtype(storage), {0});
  const TensorRef made = graph.new_view(storage, shape, contiguous_strides(shape), offset);
  graph.leaf_op(
      "aten::set_.source_Storage_storage_offset",
      {unset, Value::Opaque{"<Storage>"}, graph.offset(made), shape, contiguous_strides(shape)},
      {made});
  return made;
}

// PyTorch checks whether the weights are still in one allocation.
TensorRef whole_buffer(AutogradTape& tape, TensorRef buffer) {
  GraphBuilder& graph = tape.graph();
  const Shape shape = graph.shape(buffer);
  const TensorRef unset = empty(graph, graph.dtype(buffer), {0});
  const TensorRef made = graph.new_view(buffer, shape, contiguous_strides(shape));
  const Value storage = Value::Opaque{"<Storage>"};
  graph.begin_op("aten::set_.source_Storage", {unset, storage}, tape.sequence());
  graph.leaf_op("aten::set_.source_Storage_storage_offset", {unset, storage, 0, shape, Shape{}},
                {made});
  return graph.end_with(made);
}

/// aten::_cudnn_rnn and its backward function.
class CudnnCall {
 public:
  CudnnCall(AutogradTape& tape, const RecurrentLayers& layers, TensorRef x, const CellState& start)
      : tape_(tape), layers_(layers), x_(x), start_(start), shape_(graph_.shape(x)) {}

  RecurrentOutput forward() {
    buffer_ = whole_buffer(tape_, layers_.weight_buffer);
    if (layers_.dropout > 0) {
      dropout_state_ = graph_.new_tensor(DType::kUInt8, {kDropoutStateBytes});
    }
    const std::vector<TensorRef> weights = flat(layers_.weights);
    std::vector<Value> inputs = {x_, weights, 4, buffer_, start_.hidden, memory(start_.memory)};
    append_description(inputs);
    graph_.begin_op("aten::_cudnn_rnn", std::move(inputs), tape_.sequence());
    const DType dtype = graph_.dtype(x_);
    const Shape states = graph_.shape(start_.hidden);
    out_.sequence =
        empty(graph_, dtype, {shape_[0], shape_[1], layers_.directions() * layers_.hidden});
    out_.final_state.hidden = empty(graph_, dtype, states);
    const TensorRef last = empty(graph_, dtype, lstm() ? states : Shape{0});
    if (lstm()) out_.final_state.memory = last;
    empty(graph_, DType::kUInt8, {workspace_bytes()});
    reserve_ = empty(graph_, DType::kUInt8, {reserve_bytes()});
    graph_.end_op({out_.sequence, out_.final_state.hidden, last, reserve_, buffer_});
    record(weights);
    return out_;
  }

 private:
  bool lstm() const { return layers_.cell == RecurrentCell::kLstm; }
  Value memory(TensorRef state) { return state.exists() ? state : graph_.undefined(); }

  void append_description(std::vector<Value>& inputs) const {
    inputs.insert(inputs.end(), {mode(layers_.cell), layers_.hidden, 0, layers_.layers, false,
                                 layers_.dropout, true, layers_.bidirectional, Value::List{}});
    inputs.push_back(dropout_state_.exists() ? Value(dropout_state_) : Value(graph_.undefined()));
  }

  // cuDNN does not say how much it takes. The gates of every step must be kept for the backward
  // pass together with the states (reserve); the gates of one layer are worked on (workspace).
  std::int64_t gate_bytes() const {
    return 4 * shape_[0] * shape_[1] * gate_count(layers_.cell) * layers_.hidden;
  }
  std::int64_t workspace_bytes() const { return gate_bytes() * layers_.directions(); }
  std::int64_t reserve_bytes() const {
    const std::int64_t states = 2 * 4 * shape_[0] * shape_[1] * layers_.hidden;
    return (gate_bytes() + states) * layers_.directions() * layers_.layers;
  }

  void record(const std::vector<TensorRef>& weights) {
    std::vector<TensorRef> inputs = {x_};
    inputs.insert(inputs.end(), weights.begin(), weights.end());
    inputs.push_back(start_.hidden);
    std::vector<TensorRef> outputs = {out_.sequence, out_.final_state.hidden};
    if (lstm()) {
      inputs.push_back(start_.memory);
      outputs.push_back(out_.final_state.memory);
    }
    const auto saved = std::make_shared<CudnnCall>(*this);
    tape_.record(
        "CudnnRnnBackward0", inputs, outputs,
        [saved](const std::vector<TensorRef>& gradients) { return saved->backward(gradients); });
  }

  std::vector<TensorRef> backward(const std::vector<TensorRef>& gradients) {
    const auto or_undefined = [this](std::size_t i, const std::vector<TensorRef>& all) {
      return i < all.size() && all[i].exists() ? all[i] : graph_.undefined();
    };
    const std::vector<TensorRef> weights = flat(layers_.weights);
    const bool wants_x = tape_.requires_grad(x_), wants_h = tape_.requires_grad(start_.hidden),
               wants_c = lstm() && tape_.requires_grad(start_.memory);
    std::vector<Value> inputs = {x_,
                                 weights,
                                 4,
                                 buffer_,
                                 start_.hidden,
                                 memory(start_.memory),
                                 out_.sequence,
                                 or_undefined(0, gradients),
                                 or_undefined(1, gradients),
                                 or_undefined(2, gradients)};
    append_description(inputs);
    inputs.push_back(reserve_);
    inputs.push_back(Value::List{wants_x, wants_h, wants_c, true});
    graph_.begin_op("aten::_cudnn_rnn_backward", std::move(inputs));
    make_gradients_of_outputs(gradients);
    const DType dtype = graph_.dtype(x_);
    const TensorRef x_gradient = empty(graph_, dtype, shape_);
    const Shape states = graph_.shape(start_.hidden);
    CellState start_gradient;
    view(graph_, last_hidden_, states);
    if (lstm()) view(graph_, last_memory_, states);
    start_gradient.hidden = empty(graph_, dtype, states);
    if (lstm()) start_gradient.memory = empty(graph_, dtype, states);
    empty(graph_, DType::kUInt8, {workspace_bytes()});
    const std::vector<TensorRef> weight_gradients = gradients_of_weights();
    graph_.end_op({x_gradient, start_gradient.hidden,
                   lstm() ? start_gradient.memory : graph_.undefined(), weight_gradients});
    std::vector<TensorRef> made = {wants_x ? x_gradient : TensorRef{}};
    made.insert(made.end(), weight_gradients.begin(), weight_gradients.end());
    made.push_back(wants_h ? start_gradient.hidden : TensorRef{});
    if (lstm()) made.push_back(wants_c ? start_gradient.memory : TensorRef{});
    return made;
  }

  // Unused outputs have a gradient of zeros.
  void make_gradients_of_outputs(const std::vector<TensorRef>& gradients) {
    if (!gradients[0].exists()) dense_zeros_like(out_.sequence);
    last_hidden_ = gradients[1].exists() ? gradients[1] : dense_zeros_like(start_.hidden);
    if (!lstm()) return;
    last_memory_ = gradients[2].exists() ? gradients[2] : dense_zeros_like(start_.memory);
  }

  TensorRef dense_zeros_like(TensorRef x) {
    graph_.begin_op("aten::zeros_like", {x, kNone, kNone, kNone, kNone, 0});
    const TensorRef made = empty_like_contiguous(graph_, x);
    zero(graph_, made);
    return graph_.end_with(made);
  }

  // One buffer like the weights' buffer; per layer and direction the matrices of x and of h, then
  // the biases, each with all gates together, are looked up in it and given the shapes of the
  // weights.
  std::vector<TensorRef> gradients_of_weights() {
    const TensorRef all = zeros(graph_, graph_.dtype(buffer_), graph_.shape(buffer_));
    std::vector<TensorRef> raw, made;
    std::int64_t offset = 0;
    for (const CellWeights& w : layers_.weights) {  // matrices come before all biases
      for (TensorRef matrix : {w.input, w.hidden}) {
        raw.push_back(point_at(graph_, all, offset, {graph_.numel(matrix), 1}));
        offset += graph_.numel(matrix);
      }
      raw.insert(raw.end(), 2, TensorRef{});
    }
    std::size_t at = 0;
    for (const CellWeights& w : layers_.weights) {
      for (TensorRef bias : {w.input_bias, w.hidden_bias}) {
        raw[at + (bias.index == w.input_bias.index ? 2 : 3)] =
            point_at(graph_, all, offset, {graph_.numel(bias), 1});
        offset += graph_.numel(bias);
      }
      at += 4;
    }
    const std::vector<TensorRef> weights = flat(layers_.weights);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      graph_.begin_op("aten::view_as", {raw[i], weights[i]});
      made.push_back(view(graph_, raw[i], graph_.shape(weights[i])));
      graph_.end_op({made.back()});
    }
    return made;
  }

  AutogradTape& tape_;
  GraphBuilder& graph_ = tape_.graph();
  RecurrentLayers layers_;
  TensorRef x_;
  CellState start_;
  Shape shape_;  // shape of x: [T, B, I]
  TensorRef buffer_, dropout_state_, reserve_, last_hidden_, last_memory_;
  RecurrentOutput out_;
};

// One direction of one layer on a CPU, over all steps; gives the outputs in the order of x.
struct OneDirection {
  TensorRef sequence;
  CellState last;
};

OneDirection direction_on_cpu(AutogradTape& tape, RecurrentCell cell, const CellWeights& weights,
                              TensorRef x, CellState state, bool reversed) {
  std::vector<TensorRef> steps =
      unbind(tape, linear(tape, x, weights.input, weights.input_bias), 0);
  if (reversed) std::reverse(steps.begin(), steps.end());
  std::vector<TensorRef> outputs;
  for (TensorRef from_x : steps) {
    state = step_on_cpu(tape, cell, weights, from_x, state);
    outputs.push_back(state.hidden);
  }
  if (reversed) std::reverse(outputs.begin(), outputs.end());
  return {stack(tape, outputs, 0), state};
}

RecurrentOutput layers_on_cpu(AutogradTape& tape, const RecurrentLayers& layers, TensorRef x,
                              const CellState& start) {
  const bool lstm = start.memory.exists();
  const std::vector<TensorRef> hidden = unbind(tape, start.hidden, 0);
  const std::vector<TensorRef> memory =
      lstm ? unbind(tape, start.memory, 0) : std::vector<TensorRef>(hidden.size());
  std::vector<TensorRef> last_hidden, last_memory;
  std::size_t at = 0;
  for (int layer = 0; layer < layers.layers; ++layer) {
    std::vector<TensorRef> sides;
    for (std::int64_t direction = 0; direction < layers.directions(); ++direction, ++at) {
      const OneDirection side = direction_on_cpu(tape, layers.cell, layers.weights[at], x,
                                                 {hidden[at], memory[at]}, direction == 1);
      sides.push_back(side.sequence);
      last_hidden.push_back(side.last.hidden);
      last_memory.push_back(side.last.memory);
    }
    x = sides.size() == 1 ? sides.front() : cat(tape, sides, 2);
    const bool last_layer = layer + 1 == layers.layers;
    if (layers.dropout > 0 && !last_layer) x = dropout(tape, x, layers.dropout);
  }
  RecurrentOutput out;
  out.sequence = x;
  if (lstm) out.final_state.memory = stack(tape, last_memory, 0);
  out.final_state.hidden = stack(tape, last_hidden, 0);
  return out;
}

// torch.zeros(shape), with or without the type given.
TensorRef python_zeros(GraphBuilder& graph, const Shape& shape, bool with_dtype) {
  const TensorRef made = graph.new_tensor(DType::kFloat32, shape);
  zeros(graph, made, from_python(with_dtype));
  return made;
}

CellState zeros_of(GraphBuilder& graph, RecurrentCell cell, const Shape& shape, bool with_dtype) {
  CellState state;
  state.hidden = python_zeros(graph, shape, with_dtype);
  if (cell == RecurrentCell::kLstm) state.memory = python_zeros(graph, shape, with_dtype);
  return state;
}

}  // namespace

CellState zero_state(GraphBuilder& graph, RecurrentCell cell, const Shape& shape) {
  return zeros_of(graph, cell, shape, false);
}

RecurrentOutput recurrent_layers(AutogradTape& tape, const RecurrentLayers& layers, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const bool lstm = layers.cell == RecurrentCell::kLstm, on_gpu = graph.pytorch().on_gpu();
  const CellState start =
      zeros_of(graph, layers.cell,
               {layers.layers * layers.directions(), graph.shape(x)[1], layers.hidden}, true);
  const Value previous = lstm ? Value(state_values(start)) : Value(start.hidden);
  graph.begin_op(lstm ? "aten::lstm.input" : "aten::gru.input",
                 {x, previous, flat(layers.weights), true, layers.layers, layers.dropout, true,
                  layers.bidirectional, false},
                 tape.sequence());
  graph.leaf_op("aten::cudnn_is_acceptable", {x}, {on_gpu}, tape.sequence());
  const RecurrentOutput out =
      on_gpu ? CudnnCall(tape, layers, x, start).forward() : layers_on_cpu(tape, layers, x, start);
  std::vector<Value> outputs = state_values(out.final_state);
  outputs.insert(outputs.begin(), Value(out.sequence));
  graph.end_op(std::move(outputs));
  return out;
}

}  // namespace perfmodel
