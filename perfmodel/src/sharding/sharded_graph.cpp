#include "sharded_graph.hpp"

#include <fmt/format.h>

#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "placed_shards.hpp"
#include "refuse_table.hpp"

namespace perfmodel::sharding {
namespace {

Result<TableSharding> kind_of(const ShardedTable& table, ShardingType type) {
  using enum TableSharding;
  for (const TableSharding kind :
       {kDataParallel, kTableWise, kColumnWise, kTableColumnWise, kRowWise, kTableRowWise, kGrid}) {
    if (to_string(kind) == to_string(type)) return kind;
  }
  return refuse_table(table, "a way of TorchRec's to shard it for a graph", to_string(type));
}

Result<TorchrecDlrmConfig::TableOptimizer> optimizer_of(const ShardedTable& table) {
  switch (table.optimizer) {
    case TableOptimizer::kSgd: return TorchrecDlrmConfig::TableOptimizer::kSgd;
    case TableOptimizer::kRowwiseAdagrad:
      return TorchrecDlrmConfig::TableOptimizer::kRowwiseAdagrad;
    case TableOptimizer::kAdagrad: return TorchrecDlrmConfig::TableOptimizer::kAdagrad;
    case TableOptimizer::kAdam: return TorchrecDlrmConfig::TableOptimizer::kAdam;
    case TableOptimizer::kNone: break;
  }
  return refuse_table(table, "an optimizer for a graph", to_string(table.optimizer));
}

Result<void> check_table(const ShardedTable& table, const TablePlacement& placement) {
  if (table.features.size() != 1 || table.features.front().poolings != 1) {
    return refuse_table(table, "one feature with one bag per sample for a graph",
                        fmt::format("{} features", table.features.size()));
  }
  if (table.element_bytes != 4 || table.output_bytes.value_or(4) != 4 ||
      table.forward_wire_bytes.value_or(4) != 4 || table.backward_wire_bytes.value_or(4) != 4) {
    return refuse_table(table, "fp32 rows and vectors for a graph", "others");
  }
  if (table.deduplicated || table.hot_rows > 0) {
    return refuse_table(table, "all ids exchanged and no hot rows for a graph",
                        table.deduplicated ? "distinct ids" : "hot rows");
  }
  if (table.weighted || !table.pooled || table.features.front().batch) {
    return refuse_table(table, "pooled bags of the job's batch without weights for a graph",
                        "others");
  }
  if (placement.kernel != ComputeKernel::kFused && placement.kernel != ComputeKernel::kDense) {
    return refuse_table(table, "rows in HBM for a graph", to_string(placement.kernel));
  }
  return {};
}

Result<PlacedTable> placed(const ShardedTable& table, const TablePlacement& placement,
                           std::int64_t world, std::int64_t local_world) {
  PERFMODEL_TRY_TO(check_table(table, placement));
  PERFMODEL_TRY(kind, kind_of(table, placement.type));
  PlacedTable result;
  result.num_rows = table.rows;
  result.dim = table.dim;
  result.pooling_factor = table.features.front().pooling_factor;
  if (*kind == TableSharding::kDataParallel) return result;
  PERFMODEL_TRY(shards, placed_shards(table, placement, world, local_world));
  if (*kind == TableSharding::kTableWise) {
    result.rank = shards->front().rank;
    return result;
  }
  result.sharding = *kind;
  for (const PlacedShard& shard : *shards) {
    result.shards.push_back({.row_offset = shard.offset.rows,
                             .rows = shard.size.rows,
                             .column_offset = shard.offset.columns,
                             .columns = shard.size.columns,
                             .rank = shard.rank});
  }
  return result;
}

}  // namespace

Result<TorchrecDlrmConfig> sharded_dlrm(const ShardingStudy& study,
                                        std::span<const TablePlacement> placements) {
  if (!study.world || !study.batch_per_rank) {
    return decline("expected a world and a batch for graphs, found none");
  }
  if (!study.dense || study.dense->bottom_mlp.empty() || study.dense->top_mlp.empty() ||
      study.dense->interaction != DensePart::Interaction::kDot) {
    return decline(
        "expected a dense part with a bottom MLP, dot products and a top MLP for graphs, found "
        "another");
  }
  TorchrecDlrmConfig config;
  if (!study.name.empty()) config.name = study.name;
  config.bottom_mlp = study.dense->bottom_mlp;
  config.top_mlp = study.dense->top_mlp;
  config.batch_per_rank = *study.batch_per_rank;
  config.world_size = *study.world;
  config.local_world_size = study.local_world.value_or(*study.world);
  if (placements.size() != study.tables.size() || study.tables.empty()) {
    return decline(fmt::format("expected placements of {} tables for graphs, found {}",
                               study.tables.size(), placements.size()));
  }
  PERFMODEL_TRY(optimizer, optimizer_of(study.tables.front()));
  config.table_optimizer = *optimizer;
  for (std::size_t t = 0; t < study.tables.size(); ++t) {
    if (study.tables[t].optimizer != study.tables.front().optimizer) {
      return refuse_table(study.tables[t], "the optimizer of the first table for a graph",
                          to_string(study.tables[t].optimizer));
    }
    if (study.tables[t].skew != study.tables.front().skew || study.tables[t].skew.shift != 0) {
      return refuse_table(study.tables[t],
                          "the Zipf exponent of the first table, without a shift, for a graph",
                          study.tables[t].skew.exponent);
    }
    PERFMODEL_TRY(table, placed(settled(study.tables[t], placements[t].settings), placements[t],
                                config.world_size, config.local_world_size));
    config.tables.push_back(std::move(*table));
  }
  return config;
}

Result<ExecutionGraph> graph_of_rank(const TorchrecDlrmConfig& config, const ShardingStudy& study) {
  using Gemms = PrecisionOptions::Precision;
  PERFMODEL_TRY(graph, build_torchrec_dlrm(config));
  const double exponent = study.tables.front().skew.exponent;
  if (exponent > 0) graph = set_index_skew(*graph, exponent);
  const std::string& dtype = study.dense->dtype;
  if (!graph || dtype == "float32") return graph;
  const Gemms precision = dtype == "tf32"      ? Gemms::kTf32
                          : dtype == "float16" ? Gemms::kFp16
                                               : Gemms::kBf16;
  return rewrite_precision(*graph, {.precision = precision});
}

}  // namespace perfmodel::sharding
