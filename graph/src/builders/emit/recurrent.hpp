#pragma once

#include <vector>

#include "autograd_tape.hpp"
#include "perfmodel/graph/build_model.hpp"

namespace perfmodel {

/// 4 (input, forget, cell, output) or 3 (reset, update, new).
std::int64_t gate_count(RecurrentCell cell);

/// Weights of one layer in one direction: [G H, I], [G H, H], [G H], [G H] for G gates.
struct CellWeights {
  TensorRef input, hidden, input_bias, hidden_bias;
};

/// [B, H] between two steps; `memory` is the c of an LSTM, a GRU has none.
struct CellState {
  TensorRef hidden, memory;
};

/// nn.LSTMCell or nn.GRUCell on x [B, I]: on a GPU two products and one fused kernel.
CellState library_cell(AutogradTape& tape, RecurrentCell cell, const CellWeights& weights,
                       TensorRef x, const CellState& state);

/// The cell as Python code writes it: two linear layers, chunks and one op per sign of
///   LSTM  i, f, g, o = (x W + a + h U + b).chunk(4);  c' = s(f) * c + s(i) * tanh(g);
///         h' = s(o) * tanh(c')
///   GRU   r = s(x_r + h_r);  z = s(x_z + h_z);  n = tanh(x_n + r * h_n);  h' = n + z * (h - n)
CellState unfused_cell(AutogradTape& tape, RecurrentCell cell, const CellWeights& weights,
                       TensorRef x, const CellState& state);

/// One step of recurrent_layers() on a CPU, which has made the products with x for all steps:
/// `from_x` [B, G H] is x W + a.
CellState step_on_cpu(AutogradTape& tape, RecurrentCell cell, const CellWeights& weights,
                      TensorRef from_x, const CellState& state);

/// `torch.zeros(batch, hidden)` for each part of the state.
CellState zero_state(GraphBuilder& graph, RecurrentCell cell, const Shape& shape);

/// nn.LSTM or nn.GRU.
struct RecurrentLayers {
  RecurrentCell cell = RecurrentCell::kLstm;
  std::int64_t input = 0, hidden = 0;
  int layers = 1;
  bool bidirectional = false;
  double dropout = 0;  ///< between layers
  /// Layer by layer, the two directions of a layer one after the other.
  std::vector<CellWeights> weights;
  /// On a GPU: the one allocation that holds all weights in cuDNN's order.
  TensorRef weight_buffer = {};

  std::int64_t directions() const { return bidirectional ? 2 : 1; }
};

struct RecurrentOutput {
  TensorRef sequence;     ///< [T, B, directions H], of the last layer
  CellState final_state;  ///< [layers directions, B, H]
};

/// All layers over all steps of x [T, B, I], from a state of zeros. On a GPU one call of cuDNN
/// (`aten::_cudnn_rnn`), on a CPU the loop over steps that PyTorch runs there.
RecurrentOutput recurrent_layers(AutogradTape& tape, const RecurrentLayers& layers, TensorRef x);

}  // namespace perfmodel
