#include <map>
#include <string>
#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "recurrent_stacks.hpp"

namespace perfmodel {
namespace {

using CellKind = UnfusedCell::Kind;

// Copies the graph with one call per stack of layers and pass.
class LibraryWriter {
 public:
  LibraryWriter(const ExecutionGraph& graph, const BackwardPass& pass, const UnfusedCells& found,
                std::vector<StackOfLayers> stacks, RecurrentCall call)
      : name_(call == RecurrentCall::kWavefront ? "recurrent::wavefront" : "aten::_cudnn_rnn"),
        copy_(graph, pass, found, std::move(stacks)),
        builder_(copy_.builder()) {}

  Result<ExecutionGraph> write() {
    return copy_.write([this](std::size_t index) { forward(index); },
                       [this](std::size_t index) { backward(index); });
  }

 private:
  TensorRef tensor(std::uint32_t entry) { return copy_.tensor(entry); }
  const ExecutionGraph& source() const { return copy_.source(); }

  struct Call {
    TensorRef x, y, hx, cx, reserve;
    std::vector<TensorRef> weights;
    Shape states;
  };

  bool lstm(const StackOfLayers& stack) const { return stack.first().kind == CellKind::kLstm; }

  // cuDNN's numbers: relu, tanh, LSTM, GRU.
  std::int64_t mode(const StackOfLayers& stack) const {
    if (stack.first().kind == CellKind::kPlain) return stack.first().activation == "tanh" ? 1 : 0;
    return lstm(stack) ? 2 : 3;
  }

  void append_description(std::vector<Value>& inputs, const StackOfLayers& stack,
                          const Call& call) const {
    const std::int64_t unbound = copy_.input_dimension(stack);
    inputs.insert(inputs.end(),
                  {mode(stack), call.states.back(), 0, std::ssize(stack.layers), unbound == 1,
                   stack.dropout, !stack.functions.empty(), false, Value::List{}});
  }

  void forward(std::size_t index) {
    const StackOfLayers& stack = copy_.stacks()[index];
    Call call;
    call.x = tensor(*tensor_at(source().inputs(stack.sequence), 0));
    call.y = tensor(*tensor_at(source().outputs(stack.joined), 0));
    const DType dtype = builder_.dtype(call.x);
    const Shape state = builder_.shape(tensor(stack.first().hidden));
    call.states = {std::ssize(stack.layers), state.front(), state.back()};
    call.hx = zeros(builder_, dtype, call.states);
    if (lstm(stack)) call.cx = zeros(builder_, dtype, call.states);
    for (const LayerOfCells& layer : stack.layers) {
      for (const CellProduct* product : {layer.inputs[0], layer.states[0]}) {
        call.weights.push_back(tensor(product->weight));
      }
      for (const CellProduct* product : {layer.inputs[0], layer.states[0]}) {
        if (product->bias) call.weights.push_back(tensor(*product->bias));
      }
    }
    // Gates and states of every step, for the backward pass; 4 bytes for a number in fp32.
    const auto bytes = static_cast<std::int64_t>(size_in_bytes(dtype));
    const std::int64_t gates = mode(stack) == 2 ? 4 : mode(stack) == 3 ? 3 : 1;
    const auto steps = std::ssize(stack.layers.front().cells);
    call.reserve = builder_.new_tensor(
        DType::kUInt8,
        {bytes * (gates + 2) * steps * call.states[0] * call.states[1] * call.states[2]});
    std::vector<Value> inputs = {call.x,  call.weights, std::int64_t{4}, builder_.undefined(),
                                 call.hx, memory(call)};
    append_description(inputs, stack, call);
    inputs.push_back(builder_.undefined());
    const TensorRef last = builder_.new_tensor(dtype, call.states);
    const TensorRef last_memory =
        lstm(stack) ? builder_.new_tensor(dtype, call.states) : builder_.undefined();
    builder_.leaf_op(name_, inputs, {call.y, last, last_memory, call.reserve, builder_.undefined()},
                     source().node(stack.joined).seq_id);
    calls_[index] = call;
  }

  Value memory(const Call& call) { return call.cx.exists() ? call.cx : builder_.undefined(); }

  void backward(std::size_t index) {
    const StackOfLayers& stack = copy_.stacks()[index];
    Call& call = calls_[index];
    const TensorRef gradient = tensor(*copy_.incoming(stack));
    std::vector<TensorRef> weights;
    TensorRef x_gradient = builder_.undefined();
    for (const StackCopy::Leaving& one : copy_.leaving(stack)) {
      (one.accumulates ? weights.emplace_back() : x_gradient) = tensor(one.tensor);
    }
    builder_.begin_plain("autograd::engine::evaluate_function: CudnnRnnBackward0");
    builder_.begin_backward_function("CudnnRnnBackward0", {gradient},
                                     source().node(stack.joined).seq_id);
    std::vector<Value> inputs = {
        call.x,       call.weights, std::int64_t{4}, builder_.undefined(), call.hx,
        memory(call), call.y,       gradient,        builder_.undefined(), builder_.undefined()};
    append_description(inputs, stack, call);
    inputs.push_back(builder_.undefined());
    inputs.push_back(call.reserve);
    inputs.push_back(Value::List{true, false, false, true});
    builder_.leaf_op(name_ + "_backward", inputs,
                     {x_gradient, builder_.undefined(), builder_.undefined(), weights});
    builder_.end_op();
    builder_.end_op();
  }

  const std::string name_;
  StackCopy copy_;
  GraphBuilder& builder_;
  std::map<std::size_t, Call> calls_;
};

}  // namespace

Result<ExecutionGraph> rewrite_recurrent_layers(const ExecutionGraph& graph, RecurrentCall call) {
  const BackwardPass pass = backward_pass(graph);
  const auto found = unfused_cells_of(graph, pass);
  if (!found) return Unexpected{found.error()};
  auto layers = find_stacks_of_layers(graph, *found);
  if (!layers) return Unexpected{layers.error()};
  auto made = LibraryWriter(graph, pass, *found, std::move(layers->stacks), call).write();
  if (!made) return made;
  if (layers->left) made->warnings.push_back(layers->left->message + "; these cells are left");
  if (!found->broken.empty())
    made->warnings.push_back("lstm: some cells are none: " + found->broken);
  return made;
}

}  // namespace perfmodel
