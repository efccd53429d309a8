#pragma once

#include <functional>

#include "autograd_tape.hpp"

namespace perfmodel {

/// Which expert each token goes to, as HuggingFace's Switch Transformer computes it.
struct Routing {
  TensorRef mask;    ///< [B, S, experts] of 0 and 1, whole numbers
  TensorRef chance;  ///< [B, S, 1] of the chosen expert
};

/// A 1 at the place of each index, in a new last axis of `classes`; whole numbers.
TensorRef one_hot(AutogradTape& tape, TensorRef index, std::int64_t classes);

/// The likeliest expert of each token; those beyond the capacity of an expert go to none.
Routing route_to_one(AutogradTape& tape, TensorRef chances, std::int64_t capacity);

/// Sends `tokens` rows of x [B, S, H] through each expert, one after the other, and puts the
/// results into `next`, which is returned. Only the device knows how many rows an expert gets:
/// picking them waits for it.
TensorRef through_experts(
    AutogradTape& tape, const Routing& routing, TensorRef x, TensorRef next, std::int64_t tokens,
    std::int64_t experts,
    const std::function<TensorRef(std::int64_t expert, TensorRef rows)>& apply);

}  // namespace perfmodel
