#pragma once

#include <cstdint>

namespace perfmodel {

enum class RecurrentCell { kLstm, kGru };

/// How the recurrent layers of a model are computed.
enum class RecurrentForm {
  kLibrary,  ///< nn.LSTM or nn.GRU: one call of cuDNN for all layers and steps
  kCells,    ///< nn.LSTMCell or nn.GRUCell in a loop: two products and a fused kernel per step
  kUnfused,  ///< a cell written in Python: two products and one kernel per sign
};

/// Parameters of one layer in one direction on inputs of width `input`: for G gates (LSTM 4, GRU 3)
/// G H (I + H) weights and 2 G H biases.
std::int64_t recurrent_parameters(RecurrentCell cell, std::int64_t input, std::int64_t hidden);

/// FLOP of its products in one forward pass over `positions` = steps times batch:
/// 2 positions G H (I + H). The backward pass has twice as many.
double recurrent_forward_flop(RecurrentCell cell, std::int64_t input, std::int64_t hidden,
                              std::int64_t positions);

}  // namespace perfmodel
