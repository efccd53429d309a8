#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/detail/kernel_times.hpp"
#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A graph of one rank with the nodes of DistributedDataParallel.
struct DataParallelGraph {
  ExecutionGraph graph;
  std::vector<std::int32_t> copies;  ///< per node of the rank's graph its position in `graph`
  double gradient_bytes = 0;         ///< per step
};

/// Whether all-reduces or reduce-scatters, or collectives of unknown kind, are in the graph.
/// All-to-alls of embeddings and the like reduce no gradients.
bool reduces_gradients(const ExecutionGraph& graph, const LoweringFacts& facts);

/// Whether the question is about the graph that `make_data_parallel_graph` makes of this one.
inline bool asks_for_data_parallel(const ScaleOut& how, bool reduces_gradients) {
  return how.strategy == ParallelStrategy::kDdp && how.world > 1 && !reduces_gradients;
}

/// `rewrite_data_parallel` with the buckets of `how`. Errors of the rewrite.
Result<DataParallelGraph> make_data_parallel_graph(const ExecutionGraph& graph,
                                                   const ScaleOut& how);

/// The times of the rank's nodes, for their copies.
KernelTimes times_of_copies(const KernelTimes& times, const DataParallelGraph& made);

/// Updates of parameters inside the backward pass (FBGEMM's fused optimizers): data parallelism
/// sees no gradients of them. Number of the ops in one step.
std::size_t fused_updates(const ExecutionGraph& graph);

}  // namespace perfmodel
