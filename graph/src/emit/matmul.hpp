#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// [M, K] times [K, N], without gradient; bias [N] is added where it is given.
TensorRef mm(GraphBuilder& graph, TensorRef a, TensorRef b);
TensorRef addmm(GraphBuilder& graph, TensorRef bias, TensorRef a, TensorRef b,
                std::int64_t sequence);

/// x [B, K], weight [N, K], bias [N] -> [B, N].
TensorRef linear(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias);
/// [B, M, K] times [B, K, N].
TensorRef bmm(AutogradTape& tape, TensorRef a, TensorRef b);

}  // namespace perfmodel
