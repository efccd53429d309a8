#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct EmbeddingTable {
  std::int64_t num_rows = 0;
  std::int64_t dim = 0;
  double pooling_factor = 1;  ///< mean lookups per sample
  /// Where the table lies, for the graphs of distributed jobs (see PlacedTable::rank).
  std::optional<std::int64_t> rank = {};
};

/// A DLRM (Naumov et al., 2019): dense features through the bottom MLP, one pooled embedding per
/// table, interaction of these vectors, top MLP, sigmoid, binary cross entropy.
struct DlrmConfig {
  std::string name = "dlrm";
  std::vector<std::int64_t> bottom_mlp;  ///< widths, the dense features first
  std::vector<std::int64_t> top_mlp;     ///< widths behind the interaction, the last one 1
  std::vector<EmbeddingTable> tables;
  std::int64_t batch = 2048;

  /// Of the tables. Batched ones have it in FBGEMM's backward op: all of these (Adagrad with one
  /// number per element, or per row). Of single ones, sparse gradients are known with SGD, dense
  /// ones with all but the row-wise Adagrad.
  enum class Optimizer { kSgd, kRowwiseAdagrad, kAdagrad, kAdam } optimizer = Optimizer::kSgd;

  /// Of the MLPs; unset: that of the tables, Adagrad where they have the row-wise one. Where tables
  /// are not batched, one optimizer walks all parameters, so this stays unset.
  std::optional<TrainingOptions::Optimizer> dense_optimizer;

  /// One FBGEMM op for all tables, with the optimizer fused into its backward pass; otherwise one
  /// nn.EmbeddingBag per table.
  bool table_batched = true;

  /// Dot products of all pairs of vectors, next to the bottom MLP's output; otherwise the vectors
  /// one behind the other.
  bool interaction_dot = true;

  /// DCNv2 instead (Wang et al., 2021), as in MLPerf v3: the vectors side by side pass through
  /// layers x <- x0 * (W (V x) + b) + x, where V and W have `rank` rows and columns. 0 layers:
  /// none.
  struct LowRankCross {
    std::int64_t layers = 0, rank = 512;
  } cross;

  /// Of tables that are not batched: nn.EmbeddingBag(sparse=True), one entry per lookup.
  bool sparse_gradients = true;

  /// Of tables that are not batched: offsets come as one tensor [tables, B], else one per table.
  bool stacked_offsets = true;

  /// Device, version of PyTorch, regions, ...; its optimizer is not looked at. Its learning rate
  /// is that of the tables too.
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

}  // namespace perfmodel
