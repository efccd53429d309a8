#pragma once

#include "graph_builder.hpp"

namespace perfmodel {

// Ops without gradient that change a tensor or make one like it, as optimizers call them. A number
// becomes a tensor on the CPU ("wrapped"); if the tensor is on the CPU too, the op casts it to the
// tensor's type first.

void add_number_(GraphBuilder& graph, TensorRef x, Value number);
void mul_number_(GraphBuilder& graph, TensorRef x);
TensorRef add_number(GraphBuilder& graph, TensorRef x);
TensorRef sub_number(GraphBuilder& graph, TensorRef x);
TensorRef mul_number(GraphBuilder& graph, TensorRef x, DType number);
TensorRef div_number(GraphBuilder& graph, TensorRef x);

/// The same for a number that is an argument, as in the loops inside `_foreach_*`.
void add_scalar_(GraphBuilder& graph, TensorRef x, Value number);
void mul_scalar_(GraphBuilder& graph, TensorRef x, Value number);
void div_scalar_(GraphBuilder& graph, TensorRef x, Value number);
TensorRef add_scalar(GraphBuilder& graph, TensorRef x, Value number);
TensorRef mul_scalar(GraphBuilder& graph, TensorRef x, Value number);

/// x += y; y may be a wrapped number.
void add_(GraphBuilder& graph, TensorRef x, TensorRef y, std::int64_t sequence = -1);
/// x -= y
void sub_(GraphBuilder& graph, TensorRef x, TensorRef y);
/// x *= y
void mul_(GraphBuilder& graph, TensorRef x, TensorRef y);
/// x += alpha y
void add_scaled_(GraphBuilder& graph, TensorRef x, TensorRef y, Value alpha);
TensorRef add_scaled(GraphBuilder& graph, TensorRef x, TensorRef y, Value alpha);
/// x += (y - x) weight
void lerp_(GraphBuilder& graph, TensorRef x, TensorRef y, double weight);
/// x += value a b
void addcmul_(GraphBuilder& graph, TensorRef x, TensorRef a, TensorRef b, Value value);
/// x += value a / b
void addcdiv_(GraphBuilder& graph, TensorRef x, TensorRef a, TensorRef b, Value value);
/// x /= y
void div_(GraphBuilder& graph, TensorRef x, TensorRef y);
void sqrt_(GraphBuilder& graph, TensorRef x);
TensorRef sqrt(GraphBuilder& graph, TensorRef x);
TensorRef reciprocal(GraphBuilder& graph, TensorRef x);
TensorRef sub(GraphBuilder& graph, TensorRef x, TensorRef y);
TensorRef mul(GraphBuilder& graph, TensorRef x, TensorRef y, std::int64_t sequence = -1);
TensorRef div(GraphBuilder& graph, TensorRef x, TensorRef y, std::int64_t sequence = -1);

/// `torch.tensor(1.0)` on the CPU.
TensorRef cpu_number(GraphBuilder& graph);
/// `x.item()`, which waits for the GPU if the tensor is there.
void item(GraphBuilder& graph, TensorRef x, Value value);

}  // namespace perfmodel
