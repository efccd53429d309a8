#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// How TorchRec cuts a table. W ranks, L of them per host. Tables that are cut in one way share a
/// lookup and collectives.
enum class TableSharding : std::uint8_t {
  kDataParallel,     ///< a copy on each rank, whose gradient is reduced like that of an MLP
  kTableWise,        ///< the whole table on one rank
  kColumnWise,       ///< pieces of its columns, each on one rank
  kTableColumnWise,  ///< pieces of its columns on ranks of one host
  kRowWise,          ///< W blocks of rows, one per rank
  kTableRowWise,     ///< L blocks of rows, one on each rank of a host
  kGrid,             ///< pieces of its columns, each of them in L blocks of rows on a host
};
std::string_view to_string(TableSharding sharding);  ///< TorchRec's name: "table_row_wise"

/// A part of a table on one rank. Blocks of rows may be empty, pieces of columns not.
struct TableShard {
  std::int64_t row_offset = 0, rows = 0;
  std::int64_t column_offset = 0, columns = 0;
  std::int64_t rank = 0;
  bool operator==(const TableShard&) const = default;
};

/// A table of a TorchRec job and where it lies: `rank`, or else `sharding` and `shards`.
struct PlacedTable {
  static constexpr std::int64_t kDataParallel = -1;

  std::int64_t num_rows = 0;
  std::int64_t dim = 0;
  double pooling_factor = 1;  ///< mean lookups per sample
  /// The rank that holds the whole table (table-wise sharding), or kDataParallel.
  std::int64_t rank = kDataParallel;

  /// Empty: `rank` tells. Otherwise they cover the table, in any order; `rank` is not looked at.
  std::vector<TableShard> shards = {};
  TableSharding sharding = TableSharding::kTableWise;  ///< of `shards`

  /// `sharding`, or what `rank` says.
  TableSharding kind() const {
    if (!shards.empty()) return sharding;
    return rank == kDataParallel ? TableSharding::kDataParallel : TableSharding::kTableWise;
  }
};

/// One rank of a DLRM whose tables TorchRec has sharded: TrainPipelineSparseDist, tables in FBGEMM
/// with a fused optimizer, MLPs in DistributedDataParallel with Adagrad.
struct TorchrecDlrmConfig {
  std::string name = "torchrec-dlrm";
  std::vector<std::int64_t> bottom_mlp;  ///< widths, the dense features first
  std::vector<std::int64_t> top_mlp;     ///< widths behind the interaction, the last one 1
  std::vector<PlacedTable> tables;       ///< one feature each, in the order of the batch
  /// Of sharded tables, in the backward pass of their lookups; the others have an Adagrad.
  enum class TableOptimizer : std::uint8_t {
    kSgd,
    kRowwiseAdagrad,
    kAdagrad,
    kAdam
  } table_optimizer = TableOptimizer::kAdagrad;
  std::int64_t batch_per_rank = 2048;
  std::int64_t world_size = 8;
  std::int64_t local_world_size = 0;  ///< ranks per host; 0: all are on one
  std::int64_t rank = 0;              ///< whose graph it is

  /// Number of the first collective of the step; later ones count on, in whatever process group,
  /// and the step before had as many. It is raised where that one would have negative ones.
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
/// Tables of one kind of sharding are a group, in the order of the first table of each; those that
/// every rank has come last. A group exchanges indices (cut by rows first where rows are cut),
/// looks up on each rank that has a part of it, and exchanges vectors: all-to-all where ranks own
/// columns, reduce-scatter where they own rows, both where the ranks of a host own rows. A rank
/// without a part takes part in the exchange. Indices hit all rows of a table alike.
///
/// The batch is made by TorchRec's random dataset, with as many lookups per sample as the pooling
/// factor says. Groups of ranks (one per host, one per place in the hosts) are noted in the graph;
/// a topology whose nodes have `local_world_size` GPUs gives their collectives the right links.
///
/// Errors (kImpossible): sizes that are not positive, dims that differ from the last width of the
/// bottom MLP, fewer than 2 ranks, a rank outside the world, hosts that do not divide it, shards
/// that do not cover their table as their kind of sharding does, no table that is sharded.
Result<ExecutionGraph> build_torchrec_dlrm(const TorchrecDlrmConfig& config);

}  // namespace perfmodel
