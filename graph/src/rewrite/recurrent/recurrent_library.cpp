#include <string>
#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "recurrent_stacks.hpp"

namespace perfmodel {
namespace {

// A stack of layers as one call per pass.
class LibraryCall {
 public:
  LibraryCall(GraphEdit& edit, const StackOfLayers& stack, RecurrentCall call)
      : edit_(edit),
        stack_(stack),
        name_(call == RecurrentCall::kWavefront ? "recurrent::wavefront" : "aten::_cudnn_rnn"),
        is_lstm_(stack.first().kind == UnfusedCell::Kind::kLstm) {}

  void forward() {
    x_ = tensor(stack_.input);
    y_ = tensor(stack_.output);
    const DType dtype = builder_.dtype(x_);
    const Shape state = builder_.shape(tensor(stack_.first().hidden->tensor));
    states_ = {std::ssize(stack_.layers), state.front(), state.back()};
    hx_ = zeros(builder_, dtype, states_);
    cx_ = is_lstm_ ? zeros(builder_, dtype, states_) : builder_.undefined();
    for (const LayerOfCells& layer : stack_.layers) {
      for (const CellProduct* product : {layer.inputs[0], layer.states[0]}) {
        weights_.push_back(tensor(product->weight->tensor));
      }
      for (const CellProduct* product : {layer.inputs[0], layer.states[0]}) {
        if (product->bias) weights_.push_back(tensor(product->bias->tensor));
      }
    }
    // Gates and states of every step, for the backward pass; 4 bytes for a number in fp32.
    const auto bytes = static_cast<std::int64_t>(size_in_bytes(dtype));
    const std::int64_t gates = gates_of(stack_.first().kind);
    const auto steps = std::ssize(stack_.layers.front().cells);
    reserve_ = builder_.new_tensor(
        DType::kUInt8, {bytes * (gates + 2) * steps * states_[0] * states_[1] * states_[2]});
    std::vector<Value> inputs = {x_, weights_, std::int64_t{4}, builder_.undefined(), hx_, cx_};
    append_description(inputs);
    const TensorRef last = builder_.new_tensor(dtype, states_);
    const TensorRef last_memory =
        is_lstm_ ? builder_.new_tensor(dtype, states_) : builder_.undefined();
    builder_.leaf_op(name_, inputs, {y_, last, last_memory, reserve_, builder_.undefined()},
                     sequence_number());
  }

  void backward() {
    const TensorRef gradient = tensor(stack_.incoming);
    std::vector<TensorRef> weights;
    TensorRef x_gradient = builder_.undefined();
    for (const StackOfLayers::Gradient& one : stack_.outgoing) {
      (one.of_parameter ? weights.emplace_back() : x_gradient) = tensor(one.tensor);
    }
    builder_.begin_plain("autograd::engine::evaluate_function: CudnnRnnBackward0");
    builder_.begin_backward_function("CudnnRnnBackward0", {gradient}, sequence_number());
    std::vector<Value> inputs = {x_, weights_, std::int64_t{4},      builder_.undefined(), hx_, cx_,
                                 y_, gradient, builder_.undefined(), builder_.undefined()};
    append_description(inputs);
    inputs.push_back(reserve_);
    inputs.push_back(Value::List{true, false, false, true});
    builder_.leaf_op(name_ + "_backward", inputs,
                     {x_gradient, builder_.undefined(), builder_.undefined(), weights});
    builder_.end_op();
    builder_.end_op();
  }

 private:
  TensorRef tensor(std::uint32_t entry) { return builder_.tensor_of_source(entry); }

  std::int64_t sequence_number() const { return edit_.source().node(stack_.joined).seq_id; }

  // cuDNN's numbers: relu, tanh, LSTM, GRU.
  std::int64_t mode() const {
    if (stack_.first().kind == UnfusedCell::Kind::kPlain) {
      return stack_.first().activation == "tanh" ? 1 : 0;
    }
    return is_lstm_ ? 2 : 3;
  }

  void append_description(std::vector<Value>& inputs) {
    inputs.insert(inputs.end(), {mode(), states_.back(), 0, std::ssize(stack_.layers),
                                 stack_.input_dimension == 1, stack_.dropout, stack_.has_backward,
                                 false, Value::List{}, builder_.undefined()});
  }

  GraphEdit& edit_;
  GraphBuilder& builder_ = edit_.builder();
  const StackOfLayers& stack_;
  const std::string name_;
  const bool is_lstm_;
  TensorRef x_, y_, hx_, cx_, reserve_;
  std::vector<TensorRef> weights_;
  Shape states_;
};

}  // namespace

Result<ExecutionGraph> rewrite_recurrent_layers(const ExecutionGraph& graph, RecurrentCall call) {
  const StepView step(graph);
  PERFMODEL_TRY(cells, unfused_cells_of(step));
  PERFMODEL_TRY(found, find_stacks_of_layers(step, *cells));
  GraphEdit edit(step.graph());
  std::vector<LibraryCall> calls;
  for (const StackOfLayers& stack : found->stacks) calls.emplace_back(edit, stack, call);
  ExecutionGraph made = write_in_place_of(
      *found, edit, [&](std::size_t i) { calls[i].forward(); },
      [&](std::size_t i) { calls[i].backward(); });
  if (found->left) made.warnings.push_back(found->left->message + "; these cells are left");
  if (!cells->broken.empty()) {
    made.warnings.push_back("lstm: some cells are none: " + cells->broken);
  }
  return made;
}

}  // namespace perfmodel
