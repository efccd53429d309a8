#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// nn.Embedding: weight [rows, dim], indices of any shape -> [indices..., dim]; dense gradient.
/// `padding_row` gets none; -1: every row does.
TensorRef embedding_lookup(AutogradTape& tape, TensorRef weight, TensorRef indices,
                           std::int64_t padding_row = -1);

}  // namespace perfmodel
