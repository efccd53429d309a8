#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// PyTorch's DistributedDataParallel, one process per GPU.
struct DataParallelRewrite {
  std::int64_t world_size = 2;
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_cap_bytes = std::int64_t{25} << 20;  ///< of all buckets but the first
  /// Gradients are pieces of the buckets: nothing is copied back behind the all-reduces.
  bool gradient_as_bucket_view = false;
  std::int64_t first_collective = 1;  ///< number of the first collective of the process group
};

/// What DistributedDataParallel adds to each step of a graph of one GPU: the broadcast of buffers
/// in front of the model and the region `DistributedDataParallel.forward` around it, behind each
/// AccumulateGrad the copy of the gradient into its bucket (see `gradient_buckets`) and, when the
/// bucket is full, its all-reduce, at the end of the backward pass the way back. The batch is that
/// of one GPU.
///
/// Known buffers are the statistics of batch norms. The region ends in front of the first op whose
/// name speaks of a loss, or of the backward pass. Parameters are known where an optimizer step
/// tells whose gradients they are; elsewhere `copy_bucket_to_grad` names the gradient.
///
/// Fails for sizes below 1, graphs with collectives of their own, without AccumulateGrad on a GPU,
/// sparse gradients (NCCL does not reduce them). `copies`, if given, gets the new position of each
/// of the graph's nodes.
Result<ExecutionGraph> rewrite_data_parallel(const ExecutionGraph& graph,
                                             const DataParallelRewrite& rewrite,
                                             std::vector<std::int32_t>* copies = nullptr);

}  // namespace perfmodel
