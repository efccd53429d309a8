#pragma once

#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Megatron's tensor parallelism (Shoeybi et al. 2019) of one rank of `ranks`.
struct TensorParallelOptions {
  std::int64_t ranks = 1;
  /// Norms, dropout and residuals work on 1/ranks of each sequence; an all-gather and a
  /// reduce-scatter stand for each all-reduce (Korthikanti et al. 2022).
  bool sequence_parallel = false;
};

/// The graph of one rank: products of attention and feed-forward layers split by columns, then by
/// rows, heads and vocabulary (embedding, output layer, loss) split, with the collectives of the
/// forward and backward pass between them (`record_param_comms`, kinds and sizes as Megatron's).
/// With one rank the graph as it is. Errors: a graph in which no decoder layer is found, heads,
/// widths or vocabulary that do not divide, collectives that are there already.
Result<ExecutionGraph> make_tensor_parallel(const ExecutionGraph& graph,
                                            const TensorParallelOptions& options);

}  // namespace perfmodel
