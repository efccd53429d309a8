#include "perfmodel/sharding/detail/embedding_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/named_values.hpp"
#include "refuse_table.hpp"

namespace perfmodel::sharding {
namespace {

constexpr Named<ShardingType> kTypes[] = {{"data_parallel", ShardingType::kDataParallel},
                                          {"table_wise", ShardingType::kTableWise},
                                          {"column_wise", ShardingType::kColumnWise},
                                          {"row_wise", ShardingType::kRowWise},
                                          {"table_row_wise", ShardingType::kTableRowWise},
                                          {"table_column_wise", ShardingType::kTableColumnWise},
                                          {"grid_shard", ShardingType::kGrid},
                                          {"row_split", ShardingType::kRowSplit},
                                          {"host_row_split", ShardingType::kHostRowSplit}};

constexpr Named<ComputeKernel> kKernels[] = {{"dense", ComputeKernel::kDense},
                                             {"fused", ComputeKernel::kFused},
                                             {"fused_uvm", ComputeKernel::kFusedUvm},
                                             {"fused_uvm_caching", ComputeKernel::kFusedUvmCaching},
                                             {"hashed", ComputeKernel::kHashed}};

constexpr Named<TableOptimizer> kOptimizers[] = {
    {"none", TableOptimizer::kNone},
    {"sgd", TableOptimizer::kSgd},
    {"rowwise_adagrad", TableOptimizer::kRowwiseAdagrad},
    {"adagrad", TableOptimizer::kAdagrad},
    {"adam", TableOptimizer::kAdam}};

constexpr std::int64_t kMostColumns = 1 << 24, kMostShards = 1 << 20;

std::int64_t piece_of_columns(const ShardedTable& table) {
  constexpr std::int64_t kMultiple = 4;
  const std::int64_t least = std::max<std::int64_t>(1, table.least_columns);
  for (std::int64_t width = (least + kMultiple - 1) / kMultiple * kMultiple; width <= table.dim;
       width += kMultiple) {
    if (table.dim % width == 0) return width;
  }
  return table.dim;
}

void add_row_blocks(std::vector<ShardSize>& shards, std::int64_t rows, std::int64_t columns,
                    std::int64_t blocks) {
  const std::int64_t block = (rows + blocks - 1) / blocks;
  for (std::int64_t i = 0; i < blocks; ++i) {
    shards.push_back({std::clamp<std::int64_t>(rows - i * block, 0, block), columns});
  }
}

}  // namespace

std::string_view to_string(ShardingType type) { return name_of(kTypes, type); }
std::string_view to_string(ComputeKernel kernel) { return name_of(kKernels, kernel); }
std::string_view to_string(TableOptimizer optimizer) { return name_of(kOptimizers, optimizer); }

double TableFeature::samples_of_job(std::int64_t batch_per_rank, std::int64_t world) const {
  if (rank_batches.empty()) return static_cast<double>(batch.value_or(batch_per_rank) * world);
  return std::accumulate(rank_batches.begin(), rank_batches.end(), 0.0);
}

double TableFeature::most_samples(std::int64_t batch_per_rank) const {
  if (rank_batches.empty()) return static_cast<double>(batch.value_or(batch_per_rank));
  return static_cast<double>(*std::max_element(rank_batches.begin(), rank_batches.end()));
}

bool is_row_split(ShardingType type) {
  return type == ShardingType::kRowSplit || type == ShardingType::kHostRowSplit;
}

bool cuts_columns(ShardingType type) {
  return type == ShardingType::kColumnWise || type == ShardingType::kTableColumnWise ||
         type == ShardingType::kGrid;
}

std::optional<ShardingType> sharding_type(std::string_view name) { return value_in(kTypes, name); }
std::optional<ComputeKernel> compute_kernel(std::string_view name) {
  return value_in(kKernels, name);
}
std::optional<TableOptimizer> table_optimizer(std::string_view name) {
  return value_in(kOptimizers, name);
}

Result<std::vector<ShardSize>> shard_sizes(const ShardedTable& table, ShardingType type,
                                           std::int64_t world, std::int64_t local_world) {
  if (table.rows < 1 || table.dim < 1) {
    return refuse_table(table, "at least one row and column",
                        fmt::format("{} x {}", table.rows, table.dim));
  }
  if (table.dim > kMostColumns || table.least_columns > kMostColumns) {
    return refuse_table(table, fmt::format("at most {} columns", kMostColumns),
                        std::max(table.dim, table.least_columns));
  }
  if (world < 1 || local_world < 1 || world % local_world != 0) {
    return decline(
        fmt::format("expected ranks that are a multiple of those of a host, found {} of {}", world,
                    local_world));
  }
  std::vector<ShardSize> shards;
  const std::int64_t width = piece_of_columns(table);
  if (table.dim / width > kMostShards || world > kMostShards / (table.dim / width)) {
    return decline(
        fmt::format("table {}: expected at most {} shards, found {} pieces of columns for {} ranks",
                    table.name, kMostShards, table.dim / width, world));
  }
  switch (type) {
    case ShardingType::kDataParallel: shards.assign(world, {table.rows, table.dim}); break;
    case ShardingType::kTableWise: shards = {{table.rows, table.dim}}; break;
    case ShardingType::kColumnWise:
    case ShardingType::kTableColumnWise:
      shards.assign(table.dim / width, {table.rows, width});
      break;
    case ShardingType::kRowWise: add_row_blocks(shards, table.rows, table.dim, world); break;
    case ShardingType::kTableRowWise:
      add_row_blocks(shards, table.rows, table.dim, local_world);
      break;
    case ShardingType::kGrid:
      for (std::int64_t piece = 0; piece < table.dim / width; ++piece) {
        add_row_blocks(shards, table.rows, width, local_world);
      }
      break;
    case ShardingType::kRowSplit:
    case ShardingType::kHostRowSplit:
      return decline(fmt::format("table {}: expected a way of TorchRec's to cut it, found {}",
                                 table.name, to_string(type)));
  }
  return shards;
}

}  // namespace perfmodel::sharding
