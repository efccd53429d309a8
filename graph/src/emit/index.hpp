#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// `x[:, row, column]` of a [B, M, N] tensor with two index tensors of one length.
TensorRef index_matrix(AutogradTape& tape, TensorRef x, TensorRef row, TensorRef column);

}  // namespace perfmodel
