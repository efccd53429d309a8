#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Ops of layers whose tokens go to experts: rows sorted by expert with one product for all of them
// (torchtitan's and HuggingFace's `grouped_mm` experts), or picked by masks (Switch Transformer).

/// torch._grouped_mm, without gradient. rows [T, K] times matrices [E, K, N] -> [T, N], where rows
/// up to ends[e] belong to matrix e; or columns [M, T] times rows [T, N] -> [E, M, N].
TensorRef grouped_mm(GraphBuilder& graph, TensorRef a, TensorRef b, TensorRef ends,
                     std::int64_t sequence = -1);

/// rows [T, K], weights [E, N, K] as in linear layers -> [T, N].
TensorRef grouped_linear(AutogradTape& tape, TensorRef rows, TensorRef weights, TensorRef ends);

/// The k largest of the last axis and their places.
std::vector<TensorRef> top_k_of_last(AutogradTape& tape, TensorRef x, std::int64_t k);
/// The largest of the last axis, which goes away.
TensorRef max_of_last(AutogradTape& tape, TensorRef x);
/// Place of each number in sorted order: `x.argsort()`.
TensorRef sorted_places(AutogradTape& tape, TensorRef x);
/// A 1 at the place of each index, in a new last axis of `classes`; whole numbers.
TensorRef one_hot(AutogradTape& tape, TensorRef index, std::int64_t classes);

/// Adds `rows` to x at `places`, along the first axis, and returns x.
TensorRef add_rows(AutogradTape& tape, TensorRef x, TensorRef places, TensorRef rows);
/// `x[mask]` of x [B, S, H] and a bool [B, S] of `tokens` ones: the host waits for their number.
TensorRef pick_rows_of_mask(AutogradTape& tape, TensorRef x, TensorRef mask, std::int64_t tokens);
/// `into[mask] = rows`.
void put_rows(AutogradTape& tape, TensorRef into, TensorRef mask, TensorRef rows);

}  // namespace perfmodel
