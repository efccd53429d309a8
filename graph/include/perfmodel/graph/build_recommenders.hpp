#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/detail/training_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct EmbeddingTable {
  std::int64_t num_rows = 0, dim = 0;
  double pooling_factor = 1;  ///< mean lookups per sample
  /// Rank that holds the table, for graphs of distributed jobs (see PlacedTable::rank).
  std::optional<std::int64_t> rank = {};
};

/// A DLRM (Naumov et al., 2019): dense features through the bottom MLP, one pooled embedding per
/// table, interaction of these vectors, top MLP, sigmoid, binary cross entropy.
struct DlrmConfig {
  std::string name = "dlrm";
  std::vector<std::int64_t> bottom_mlp;  ///< widths, the dense features first
  std::vector<std::int64_t> top_mlp;     ///< widths after the interaction, the last one 1
  std::vector<EmbeddingTable> tables;
  std::int64_t batch = 2048;

  /// Optimizer of the tables. Batched tables train in FBGEMM's backward op and take all of these
  /// (Adagrad with one number per element, or per row) except SparseAdam. Single tables take SGD,
  /// Adagrad and SparseAdam with sparse gradients, and SGD, Adagrad and Adam with dense ones.
  enum class Optimizer {
    kSgd,
    kRowwiseAdagrad,
    kAdagrad,
    kAdam,
    kSparseAdam
  } optimizer = Optimizer::kSgd;

  /// Optimizer of the MLPs. Unset: the tables' optimizer, with Adagrad in place of row-wise Adagrad
  /// and Adam in place of SparseAdam. It cannot be set for single tables with dense gradients,
  /// where one optimizer walks all parameters.
  std::optional<TrainingOptions::Optimizer> dense_optimizer;

  /// One FBGEMM op for all tables, with the optimizer fused into its backward pass; otherwise one
  /// nn.EmbeddingBag per table.
  bool table_batched = true;

  /// Dot products of all pairs of vectors, next to the bottom MLP's output; otherwise the vectors
  /// themselves, concatenated.
  bool interaction_dot = true;

  /// DCNv2 instead (Wang et al., 2021), as in MLPerf v3: the vectors side by side pass through
  /// layers x <- x0 * (W (V x) + b) + x, where V and W have `rank` rows and columns. 0 layers:
  /// none.
  struct LowRankCross {
    std::int64_t layers = 0, rank = 512;
  } cross;

  /// nn.EmbeddingBag(sparse=True) for tables that are not batched: one entry per lookup.
  bool sparse_gradients = true;

  /// Tables that are not batched get their offsets as one tensor [tables, B], else one per table.
  bool stacked_offsets = true;

  /// Device, version of PyTorch, regions, ...; its optimizer is ignored. Tables use its learning
  /// rate, too.
  TrainingOptions training;
};

/// "dcnv2" (also "mlperf-v3"): DLRM-DCNv2 of MLPerf v3.0 with its multi-hot features, a batch of
/// 8,192, Adagrad. "default", "mlperf" or "ddp": the workloads of Lin et al. with a batch of 2,048,
/// SGD and batched tables. mlperf has the 26 tables of Criteo Terabyte, capped at 40 million rows.
Result<DlrmConfig> dlrm_preset(std::string_view name);

/// Width of the first top layer: D + M (M - 1) / 2 for dot products of M vectors of width D; of all
/// vectors side by side otherwise.
std::int64_t interaction_width(const DlrmConfig& config);

/// The execution graph of one training step on one GPU, as PyTorch's observer would record it:
/// copies of the batch, forward pass, zero_grad, backward pass on the autograd thread, optimizer.
///
/// Follows PyTorch 2: gradients are set to None, optimizers work on lists of tensors
/// (`aten::_foreach_add_`) unless a gradient is sparse. Indices of the interaction live on the GPU.
/// Labels of one sample and all parameters are float32. Ids are never reused.
///
/// Errors: sizes that are not positive, widths that do not fit, a batch with more lookups or tables
/// with more elements than 2^60, optimizers that the kind of tables does not have, batched tables
/// on a CPU.
Result<ExecutionGraph> build_dlrm(const DlrmConfig& config);

/// Reads a table list: CSV with the columns `rows, dim, pooling` (and `table`, a name that is not
/// used, and `rank`: a number, -1 for all ranks), or a JSON array of objects with the same keys.
/// `.json` and `.csv` tell them apart.
Result<std::vector<EmbeddingTable>> read_embedding_tables(const std::filesystem::path& file);

/// How TorchRec cuts a table. W ranks, L of them per host. Tables that are cut in one way share a
/// lookup and collectives.
enum class TableSharding : std::uint8_t {
  kDataParallel,     ///< a copy on each rank, whose gradient is all-reduced like an MLP's
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

/// A table of a TorchRec job and its place: `rank`, or else `sharding` and `shards`.
struct PlacedTable {
  static constexpr std::int64_t kDataParallel = -1;

  std::int64_t num_rows = 0, dim = 0;
  double pooling_factor = 1;  ///< mean lookups per sample
  /// The rank that holds the whole table (table-wise sharding), or kDataParallel.
  std::int64_t rank = kDataParallel;

  /// Empty: `rank` tells. Otherwise they cover the table, in any order; `rank` is not looked at.
  std::vector<TableShard> shards = {};
  TableSharding sharding = TableSharding::kTableWise;  ///< kind of `shards`

  /// `sharding`, or the kind that follows from `rank`.
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
  std::vector<std::int64_t> top_mlp;     ///< widths after the interaction, the last one 1
  std::vector<PlacedTable> tables;       ///< one feature each, in the order of the batch
  /// Of sharded tables, in the backward pass of their lookups; the others have an Adagrad.
  enum class TableOptimizer : std::uint8_t {
    kSgd,
    kRowwiseAdagrad,
    kAdagrad,
    kAdam
  } table_optimizer = TableOptimizer::kAdagrad;
  std::int64_t batch_per_rank = 2048, world_size = 8;
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
