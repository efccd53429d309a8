#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// x [B, K], weight [N, K], bias [N] -> [B, N].
TensorRef linear(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias);
/// [B, M, K] times [B, K, N].
TensorRef bmm(AutogradTape& tape, TensorRef a, TensorRef b);

}  // namespace perfmodel
