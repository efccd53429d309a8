#pragma once

#include <map>

#include "../../kernels/embedding.hpp"
#include "buffers.hpp"

/// References in double precision, on the device: plain loops, one thread per element or lookup.
namespace kernels_bench::gpu {

/// Gradients that arrive at some of the rows that lookups update.
struct RowSums {
  std::vector<std::int64_t> rows;     ///< over all tables, ascending
  std::vector<reference::Row> sums;   ///< gradient of each, summed over its lookups
  std::vector<std::int64_t> lookups;  ///< number for each
};

/// Rows of lookups spread over all of them, and the first and last row there is.
Outcome<RowSums> sum_sampled_rows(Context& context, const std::int64_t* indices,
                                  const float* gradient, const kernels::EmbeddingShape& shape);

/// Forward results of the given bags, [bags.size(), dim].
Outcome<reference::Row> sum_sampled_bags(Context& context, const void* weights, DType dtype,
                                         const std::int64_t* indices,
                                         const kernels::EmbeddingShape& shape,
                                         const std::vector<std::int64_t>& bags);

}  // namespace kernels_bench::gpu
