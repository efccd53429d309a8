#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

/// T5's bias on attention scores: table [buckets, heads] looked up by the distance of key and query
/// -> [1, heads, queries, keys]. An encoder tells both directions apart.
TensorRef relative_position_bias(AutogradTape& tape, TensorRef table, std::int64_t queries,
                                 std::int64_t keys, bool bidirectional);

}  // namespace perfmodel
