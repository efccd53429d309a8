#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A table of a TorchRec job and where it lies.
struct PlacedTable {
  static constexpr std::int64_t kDataParallel = -1;

  std::int64_t num_rows = 0;
  std::int64_t dim = 0;
  double pooling_factor = 1;  ///< mean lookups per sample
  /// The rank that holds the whole table (table-wise sharding), or kDataParallel: every rank has a
  /// copy, whose gradient is reduced like that of an MLP.
  std::int64_t rank = kDataParallel;
};

/// One rank of a DLRM whose tables TorchRec has sharded: TrainPipelineSparseDist, tables in FBGEMM
/// with a fused Adagrad, MLPs in DistributedDataParallel with Adagrad.
struct TorchrecDlrmConfig {
  std::string name = "torchrec-dlrm";
  std::vector<std::int64_t> bottom_mlp;  ///< widths, the dense features first
  std::vector<std::int64_t> top_mlp;     ///< widths behind the interaction, the last one 1
  std::vector<PlacedTable> tables;       ///< one feature each, in the order of the batch
  std::int64_t batch_per_rank = 2048;
  std::int64_t world_size = 8;
  std::int64_t rank = 0;  ///< whose graph it is

  /// Number of the first collective of the step; later ones count on, and the step before had as
  /// many.
  std::int64_t first_collective = 8;
};

/// "v100-8": the job whose ranks 0 to 3 lie in the public traces (26 tables of Criteo Terabyte with
/// several lookups each, dim 16, 16 samples per rank, 8 ranks).
Result<TorchrecDlrmConfig> torchrec_dlrm_preset(std::string_view name);

/// The execution graph of one training step of one rank, as PyTorch 2.0's observer records it:
/// zero_grad, copy of the batch after the next, forward pass of this batch (its indices were
/// exchanged during the last step), exchange of the next batch's indices, backward pass with the
/// all-reduces of DDP, optimizer. All ranks of one job come from one configuration that differs in
/// `rank` alone.
///
/// Table-wise and data-parallel tables only. The batch is made by TorchRec's random dataset, with
/// as many lookups per sample as the pooling factor says.
///
/// Errors (kImpossible): sizes that are not positive, dims that differ from the last width of the
/// bottom MLP, fewer than 2 ranks, a rank outside the world, no table on this rank.
Result<ExecutionGraph> build_torchrec_dlrm(const TorchrecDlrmConfig& config);

}  // namespace perfmodel
