#pragma once

#include "builders/emit/autograd_tape.hpp"

namespace perfmodel {

/// The gated delta rule (Yang, Kautz and Hatamizadeh 2024) on chunks of C tokens: queries and keys
/// [N, C, D], values [N, C, E] -> [N, C, E], N chunks of all heads. With T the inverse of the
/// triangle of K K^T, states S of D x E numbers:
///
///   W = T K,  U = T V,  S = K^T U,  F = U - W S,  O = Q S + (Q K^T) F
///
/// Like the kernels of flash-linear-attention it keeps queries, keys, values and T, and computes
/// the rest again for the backward pass. Decays and betas cost nothing here: kernels apply them to
/// numbers that they have loaded.
TensorRef delta_rule(AutogradTape& tape, TensorRef queries, TensorRef keys, TensorRef values);

}  // namespace perfmodel
