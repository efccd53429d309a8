#pragma once

#include <vector>

#include "graph_builder.hpp"

namespace perfmodel {

// `torch._foreach_*`: one op over lists of equal length. On a GPU it asks for the result type of
// each tensor with each number, makes its outputs and treats many tensors per kernel; for lists on
// the CPU it calls the op on each tensor.

using TensorList = std::vector<TensorRef>;

void foreach_add_number_(GraphBuilder& graph, const TensorList& x, Value number);
TensorList foreach_add_number(GraphBuilder& graph, const TensorList& x, Value number);
void foreach_mul_number_(GraphBuilder& graph, const TensorList& x, double number);
/// One number per tensor.
void foreach_div_numbers_(GraphBuilder& graph, const TensorList& x, double number);
TensorList foreach_mul_numbers(GraphBuilder& graph, const TensorList& x, double number);

/// x += alpha y
void foreach_add_(GraphBuilder& graph, const TensorList& x, const TensorList& y, Value alpha);
TensorList foreach_add(GraphBuilder& graph, const TensorList& x, const TensorList& y, Value alpha);
/// Adds one tensor to each; the list is on the CPU.
void foreach_add_tensor_(GraphBuilder& graph, const TensorList& x, TensorRef number);
/// Products with numbers that are tensors on the CPU: a loop on GPUs too.
TensorList foreach_mul_cpu_numbers(GraphBuilder& graph, const TensorList& x, const TensorList& y);
TensorList foreach_div(GraphBuilder& graph, const TensorList& x, const TensorList& y);
void foreach_lerp_(GraphBuilder& graph, const TensorList& x, const TensorList& y, double weight);
void foreach_addcmul_(GraphBuilder& graph, const TensorList& x, const TensorList& a,
                      const TensorList& b, Value value);
void foreach_addcdiv_(GraphBuilder& graph, const TensorList& x, const TensorList& a,
                      const TensorList& b, Value value);
/// One number per tensor.
void foreach_addcdiv_numbers_(GraphBuilder& graph, const TensorList& x, const TensorList& a,
                              const TensorList& b, double number);
TensorList foreach_sqrt(GraphBuilder& graph, const TensorList& x);
void foreach_zero_(GraphBuilder& graph, const TensorList& x, std::int64_t sequence);

}  // namespace perfmodel
