#pragma once

#include "builders/emit/recurrent.hpp"
#include "training_step.hpp"

namespace perfmodel {

// Shared parts of models with recurrent layers.

/// The parameters of nn.LSTM or nn.GRU in the order in which it registers them. On a GPU they are
/// views of one buffer, first all matrices, then all biases, as cuDNN wants them.
RecurrentLayers make_recurrent_layers(TrainingStep& step, RecurrentLayers shape);

/// The parameters of one nn.LSTMCell or nn.GRUCell.
CellWeights make_cell(TrainingStep& step, RecurrentCell cell, std::int64_t input,
                      std::int64_t hidden);

/// `cell(x, state)` of the form: a fused one, or one written in Python.
CellState step_of(AutogradTape& tape, RecurrentForm form, RecurrentCell cell,
                  const CellWeights& weights, TensorRef x, const CellState& state);

}  // namespace perfmodel
