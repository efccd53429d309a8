#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "../emit/recurrent.hpp"
#include "perfmodel/result.hpp"
#include "training_step.hpp"

namespace perfmodel {

// What models with recurrent layers share.

/// The parameters of nn.LSTM or nn.GRU in the order in which it registers them. On a GPU they are
/// views of one buffer, first all matrices, then all biases, as cuDNN wants them.
RecurrentLayers make_recurrent_layers(TrainingStep& step, RecurrentLayers shape);

/// Those of one nn.LSTMCell or nn.GRUCell.
CellWeights make_cell(TrainingStep& step, RecurrentCell cell, std::int64_t input,
                      std::int64_t hidden);

/// `cell(x, state)` of the form: a fused one, or one written in Python.
CellState step_of(AutogradTape& tape, RecurrentForm form, RecurrentCell cell,
                  const CellWeights& weights, TensorRef x, const CellState& state);

/// "expected an LSTM preset (a, b), found "c"".
Unexpected unknown_preset(std::string_view what, std::string_view found,
                          std::initializer_list<std::string_view> known);
/// "hidden: expected at least 1, found 0".
Result<void> expect_at_least(std::string_view what, std::int64_t least, std::int64_t found);
Result<void> expect_probability(std::string_view what, double found);
/// Refuses a tensor of 2^60 elements or more.
Result<void> expect_countable(std::string_view what, const Shape& shape);
/// The first of several checks that fails.
Result<void> all_good(std::initializer_list<Result<void>> checks);

}  // namespace perfmodel
