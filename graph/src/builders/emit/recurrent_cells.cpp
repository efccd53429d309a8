#include <string>
#include <utility>

#include "activation.hpp"
#include "in_place.hpp"
#include "matmul.hpp"
#include "memory.hpp"
#include "pointwise.hpp"
#include "recurrent.hpp"
#include "reduction.hpp"
#include "sequence.hpp"
#include "split.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

TensorRef sum_over_batch(GraphBuilder& graph, TensorRef x) { return sum(graph, x, {0}, false); }

// One kernel for all that is no product. It adds the biases too and keeps the gates.
CellState fused_lstm(AutogradTape& tape, const CellWeights& weights, TensorRef x_gates,
                     TensorRef h_gates, TensorRef memory) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::_thnn_fused_lstm_cell",
                 {x_gates, h_gates, memory, weights.input_bias, weights.hidden_bias},
                 tape.sequence());
  const TensorRef workspace = empty_like_contiguous(graph, x_gates);
  const CellState next = {empty_like_contiguous(graph, memory),
                          empty_like_contiguous(graph, memory)};
  graph.end_op({next.hidden, next.memory, workspace});
  tape.record("ThnnFusedLstmCellBackward0",
              {x_gates, h_gates, memory, weights.input_bias, weights.hidden_bias},
              {next.hidden, next.memory},
              [&graph, memory, next, workspace](const std::vector<TensorRef>& gradients) {
                const auto or_undefined = [&graph](TensorRef gradient) {
                  return gradient.exists() ? gradient : graph.undefined();
                };
                const std::vector<Value> arguments = {or_undefined(gradients[0]),
                                                      or_undefined(gradients[1]),
                                                      memory,
                                                      next.memory,
                                                      workspace,
                                                      true};
                graph.begin_op("aten::_thnn_fused_lstm_cell_backward", arguments);
                graph.begin_op("aten::_thnn_fused_lstm_cell_backward_impl", arguments);
                const TensorRef gates = empty_like_contiguous(graph, workspace);
                const TensorRef memory_gradient = empty_like_contiguous(graph, memory);
                const TensorRef bias = sum_over_batch(graph, gates);
                graph.end_op({gates, memory_gradient, bias});
                graph.end_op({gates, gates, memory_gradient, bias, bias});
                return std::vector<TensorRef>{gates, gates, memory_gradient, bias, bias};
              });
  return next;
}

CellState fused_gru(AutogradTape& tape, const CellWeights& weights, TensorRef x_gates,
                    TensorRef h_gates, TensorRef hidden) {
  GraphBuilder& graph = tape.graph();
  const DType dtype = graph.dtype(hidden);
  const Shape shape = graph.shape(hidden);
  graph.begin_op("aten::_thnn_fused_gru_cell",
                 {x_gates, h_gates, hidden, weights.input_bias, weights.hidden_bias},
                 tape.sequence());
  const TensorRef workspace = empty(graph, dtype, {shape[0], 5 * shape[1]});
  const TensorRef next = empty_like_contiguous(graph, hidden);
  graph.end_op({next, workspace});
  tape.record(
      "ThnnFusedGruCellBackward0",
      {x_gates, h_gates, hidden, weights.input_bias, weights.hidden_bias}, next,
      [&graph, dtype, shape, workspace](TensorRef gradient) {
        graph.begin_op("aten::_thnn_fused_gru_cell_backward", {gradient, workspace, true});
        const TensorRef x_gradient = empty(graph, dtype, {shape[0], 3 * shape[1]});
        const TensorRef h_gradient = empty(graph, dtype, {shape[0], 3 * shape[1]});
        const TensorRef hidden_gradient = empty_like_contiguous(graph, gradient);
        const TensorRef x_bias = sum_over_batch(graph, x_gradient);
        const TensorRef h_bias = sum_over_batch(graph, h_gradient);
        graph.end_op({x_gradient, h_gradient, hidden_gradient, x_bias, h_bias});
        return std::vector<TensorRef>{x_gradient, h_gradient, hidden_gradient, x_bias, h_bias};
      });
  return {.hidden = next, .memory = {}};
}

CellState unfused_lstm(AutogradTape& tape, const CellWeights& weights, TensorRef x,
                       const CellState& state) {
  const TensorRef from_x = linear(tape, x, weights.input, weights.input_bias);
  const TensorRef from_h = linear(tape, state.hidden, weights.hidden, weights.hidden_bias);
  const auto gates = chunk(tape, add(tape, from_x, from_h), 4, 1);
  const TensorRef kept = mul(tape, sigmoid(tape, gates[1]), state.memory);
  const TensorRef input = sigmoid(tape, gates[0]);
  const TensorRef added = mul(tape, input, tanh(tape, gates[2]));
  const TensorRef memory = add(tape, kept, added);
  const TensorRef output = sigmoid(tape, gates[3]);
  return {mul(tape, output, tanh(tape, memory)), memory};
}

CellState unfused_gru(AutogradTape& tape, const CellWeights& weights, TensorRef x,
                      const CellState& state) {
  const TensorRef from_x = linear(tape, x, weights.input, weights.input_bias);
  const TensorRef from_h = linear(tape, state.hidden, weights.hidden, weights.hidden_bias);
  const auto x_gates = chunk(tape, from_x, 3, 1);
  const auto h_gates = chunk(tape, from_h, 3, 1);
  const TensorRef reset = sigmoid(tape, add(tape, x_gates[0], h_gates[0]));
  const TensorRef update = sigmoid(tape, add(tape, x_gates[1], h_gates[1]));
  const TensorRef fresh = tanh(tape, add(tape, x_gates[2], mul(tape, reset, h_gates[2])));
  const TensorRef change = mul(tape, update, sub(tape, state.hidden, fresh));
  return {.hidden = add(tape, fresh, change), .memory = {}};
}

// On a CPU: the same products, then one op per sign, in place if nothing is lost.
CellState lstm_on_cpu(AutogradTape& tape, TensorRef sum, TensorRef memory) {
  const auto gates = unsafe_chunk(tape, sum, 4, 1);
  sigmoid_in_place(tape, gates[0]);
  sigmoid_in_place(tape, gates[1]);
  tanh_in_place(tape, gates[2]);
  sigmoid_in_place(tape, gates[3]);
  const TensorRef next = mul(tape, gates[1], memory);
  add_in_place(tape, next, mul(tape, gates[0], gates[2]));
  return {mul(tape, gates[3], tanh(tape, next)), next};
}

CellState gru_on_cpu(AutogradTape& tape, const CellWeights& weights, TensorRef from_x,
                     TensorRef hidden) {
  const auto x_gates = unsafe_chunk(tape, from_x, 3, 1);
  const TensorRef from_h = linear(tape, hidden, weights.hidden, weights.hidden_bias);
  const auto h_gates = unsafe_chunk(tape, from_h, 3, 1);
  for (std::size_t gate : {0U, 1U}) {  // reset, update
    add_in_place(tape, h_gates[gate], x_gates[gate]);
    sigmoid_in_place(tape, h_gates[gate]);
  }
  mul_in_place(tape, h_gates[2], h_gates[0]);
  const TensorRef fresh = add(tape, x_gates[2], h_gates[2]);
  tanh_in_place(tape, fresh);
  const TensorRef next = sub(tape, hidden, fresh);
  mul_in_place(tape, next, h_gates[1]);
  add_in_place(tape, next, fresh);
  return {.hidden = next, .memory = {}};
}

CellState cell_on_gpu(AutogradTape& tape, RecurrentCell cell, const CellWeights& weights,
                      TensorRef x, const CellState& state) {
  const TensorRef x_gates = matmul(tape, x, t(tape, weights.input));
  const TensorRef h_gates = matmul(tape, state.hidden, t(tape, weights.hidden));
  return cell == RecurrentCell::kLstm ? fused_lstm(tape, weights, x_gates, h_gates, state.memory)
                                      : fused_gru(tape, weights, x_gates, h_gates, state.hidden);
}

}  // namespace

std::int64_t gate_count(RecurrentCell cell) { return cell == RecurrentCell::kLstm ? 4 : 3; }

std::int64_t recurrent_parameters(RecurrentCell cell, std::int64_t input, std::int64_t hidden) {
  return gate_count(cell) * hidden * (input + hidden + 2);
}

double recurrent_forward_flop(RecurrentCell cell, std::int64_t input, std::int64_t hidden,
                              std::int64_t positions) {
  return 2.0 * static_cast<double>(positions) *
         static_cast<double>(gate_count(cell) * hidden * (input + hidden));
}

CellState step_on_cpu(AutogradTape& tape, RecurrentCell cell, const CellWeights& weights,
                      TensorRef from_x, const CellState& state) {
  if (cell == RecurrentCell::kGru) return gru_on_cpu(tape, weights, from_x, state.hidden);
  const TensorRef sum = linear(tape, state.hidden, weights.hidden, weights.hidden_bias);
  add_in_place(tape, sum, from_x);
  return lstm_on_cpu(tape, sum, state.memory);
}

CellState library_cell(AutogradTape& tape, RecurrentCell cell, const CellWeights& weights,
                       TensorRef x, const CellState& state) {
  GraphBuilder& graph = tape.graph();
  const bool lstm = cell == RecurrentCell::kLstm;
  const Value previous =
      lstm ? Value(Value::List{state.hidden, state.memory}) : Value(state.hidden);
  graph.begin_op(
      lstm ? "aten::lstm_cell" : "aten::gru_cell",
      {x, previous, weights.input, weights.hidden, weights.input_bias, weights.hidden_bias},
      tape.sequence());
  CellState next;
  if (graph.pytorch().on_gpu()) {
    next = cell_on_gpu(tape, cell, weights, x, state);
  } else if (lstm) {
    const TensorRef sum = linear(tape, state.hidden, weights.hidden, weights.hidden_bias);
    add_in_place(tape, sum, linear(tape, x, weights.input, weights.input_bias));
    next = lstm_on_cpu(tape, sum, state.memory);
  } else {
    next =
        gru_on_cpu(tape, weights, linear(tape, x, weights.input, weights.input_bias), state.hidden);
  }
  graph.end_op(lstm ? std::vector<Value>{next.hidden, next.memory}
                    : std::vector<Value>{next.hidden});
  return next;
}

CellState unfused_cell(AutogradTape& tape, RecurrentCell cell, const CellWeights& weights,
                       TensorRef x, const CellState& state) {
  return cell == RecurrentCell::kLstm ? unfused_lstm(tape, weights, x, state)
                                      : unfused_gru(tape, weights, x, state);
}

}  // namespace perfmodel
