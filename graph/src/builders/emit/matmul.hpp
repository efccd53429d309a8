#pragma once

#include "emitter.hpp"

namespace perfmodel {

// Matrix products. Products on a GraphBuilder have no gradient: backward functions call them.

TensorRef mm(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence = -1);
TensorRef bmm(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence = -1);
/// bias [N] + a [M, K] times b [K, N].
TensorRef addmm(GraphBuilder& graph, TensorRef bias, TensorRef a, TensorRef b,
                std::int64_t sequence = -1);

/// The gradients of a b to a and to b.
TensorRef left_gradient(GraphBuilder& graph, TensorRef gradient, TensorRef a, TensorRef b);
TensorRef right_gradient(GraphBuilder& graph, TensorRef gradient, TensorRef a, TensorRef b);

inline TensorRef mm(AutogradTape& tape, TensorRef a, TensorRef b) {
  return emit(tape, "aten::mm", {a, b});
}
/// [B, M, K] times [B, K, N].
inline TensorRef bmm(AutogradTape& tape, TensorRef a, TensorRef b) {
  return emit(tape, "aten::bmm", {a, b});
}
inline TensorRef addmm(AutogradTape& tape, TensorRef bias, TensorRef a, TensorRef b) {
  return emit(tape, "aten::addmm", {bias, a, b, 1, 1});
}
/// torch.matmul of two tensors of at least two axes; leading axes are batches and broadcast.
TensorRef matmul(AutogradTape& tape, TensorRef a, TensorRef b);

/// x [..., K], weight [N, K] -> [..., N]. A bias that does not exist is left out.
TensorRef linear(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias = {});

}  // namespace perfmodel
