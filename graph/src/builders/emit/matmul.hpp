#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Matrix products. Those on a GraphBuilder have no gradient: backward functions call them.

TensorRef mm(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence = -1);
TensorRef bmm(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence = -1);
/// bias [N] + a [M, K] times b [K, N].
TensorRef addmm(GraphBuilder& graph, TensorRef bias, TensorRef a, TensorRef b,
                std::int64_t sequence = -1);

TensorRef mm(AutogradTape& tape, TensorRef a, TensorRef b);
/// [B, M, K] times [B, K, N].
TensorRef bmm(AutogradTape& tape, TensorRef a, TensorRef b);
TensorRef addmm(AutogradTape& tape, TensorRef bias, TensorRef a, TensorRef b);
/// torch.matmul of two tensors of at least two axes; leading axes are batches and broadcast.
TensorRef matmul(AutogradTape& tape, TensorRef a, TensorRef b);

/// x [..., K], weight [N, K] -> [..., N]. A bias that does not exist is left out.
TensorRef linear(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias = {});

}  // namespace perfmodel
