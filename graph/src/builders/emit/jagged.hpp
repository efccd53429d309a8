#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// FBGEMM's ops on jagged tensors: consecutive lists of indices of any length, with the lengths in a
// tensor of their own. No gradient. `sequence`: of the ops inside, -1 under no_grad.

struct Jagged {
  TensorRef lengths;  ///< [F, B] or flat
  TensorRef values;   ///< as many as the lengths add up to
};

/// Rows of `lengths` [F, B] in another order, and the values with them. `order` may name a row
/// several times or not at all: then `total` says how many values there are; -1: as before.
Jagged permute_jagged(GraphBuilder& graph, TensorRef order, const Jagged& features,
                      std::int64_t sequence, std::int64_t total = -1);

/// Sorts values of F features, which are rows of tables, by their block of rows: lengths [F * B]
/// become [buckets, F, B]. `block_rows` [F]: rows of a block.
Jagged block_bucketize(GraphBuilder& graph, TensorRef block_rows, std::int64_t buckets,
                       const Jagged& features, std::int64_t sequence);

/// [N] -> [N + 1]: offsets of the lengths.
TensorRef complete_cumsum(GraphBuilder& graph, TensorRef lengths, std::int64_t sequence);

// Scratch memory that FBGEMM allocates for CUB over `count` elements, as recorded on a V100.

void prefix_sum_scratch(GraphBuilder& graph, std::int64_t count);
void run_length_scratch(GraphBuilder& graph, std::int64_t count);
/// Scratch for int64 keys with int32 values.
void sort_scratch(GraphBuilder& graph, std::int64_t count);

}  // namespace perfmodel
