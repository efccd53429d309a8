#include "perfmodel/sharding/embedding_shards.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace perfmodel::sharding {
namespace {

std::int64_t piece_of_columns(const ShardedTable& table) {
  constexpr std::int64_t kMultiple = 4;
  for (std::int64_t width = std::max<std::int64_t>(1, table.least_columns); width <= table.dim;
       ++width) {
    if (table.dim % width == 0 && width % kMultiple == 0) return width;
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

std::string_view to_string(ShardingType type) {
  switch (type) {
    case ShardingType::kDataParallel:
      return "data_parallel";
    case ShardingType::kTableWise:
      return "table_wise";
    case ShardingType::kColumnWise:
      return "column_wise";
    case ShardingType::kRowWise:
      return "row_wise";
    case ShardingType::kTableRowWise:
      return "table_row_wise";
    case ShardingType::kTableColumnWise:
      return "table_column_wise";
    case ShardingType::kGrid:
      return "grid_shard";
  }
  return "";
}

std::string_view to_string(ComputeKernel kernel) {
  switch (kernel) {
    case ComputeKernel::kDense:
      return "dense";
    case ComputeKernel::kFused:
      return "fused";
    case ComputeKernel::kFusedUvm:
      return "fused_uvm";
    case ComputeKernel::kFusedUvmCaching:
      return "fused_uvm_caching";
  }
  return "";
}

Result<std::vector<ShardSize>> shard_sizes(const ShardedTable& table, ShardingType type,
                                           std::int64_t world, std::int64_t local_world) {
  if (table.rows < 1 || table.dim < 1) {
    return fail(ErrorCode::kImpossible,
                fmt::format("table {}: expected at least one row and column, found {} x {}",
                            table.name, table.rows, table.dim));
  }
  if (world < 1 || local_world < 1 || world % local_world != 0) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected ranks that are a multiple of those of a host, found {} of {}",
                            world, local_world));
  }
  std::vector<ShardSize> shards;
  const std::int64_t width = piece_of_columns(table);
  switch (type) {
    case ShardingType::kDataParallel:
      shards.assign(static_cast<std::size_t>(world), {table.rows, table.dim});
      break;
    case ShardingType::kTableWise:
      shards = {{table.rows, table.dim}};
      break;
    case ShardingType::kColumnWise:
    case ShardingType::kTableColumnWise:
      shards.assign(static_cast<std::size_t>(table.dim / width), {table.rows, width});
      break;
    case ShardingType::kRowWise:
      add_row_blocks(shards, table.rows, table.dim, world);
      break;
    case ShardingType::kTableRowWise:
      add_row_blocks(shards, table.rows, table.dim, local_world);
      break;
    case ShardingType::kGrid:
      for (std::int64_t piece = 0; piece < table.dim / width; ++piece) {
        add_row_blocks(shards, table.rows, width, local_world);
      }
      break;
  }
  return shards;
}

}  // namespace perfmodel::sharding
