#include "perfmodel/sharding/placed_table.hpp"

#include <fmt/format.h>

#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace perfmodel::sharding {
namespace {

Unexpected refuse(const ShardedTable& table, std::string_view expected, std::string_view found) {
  return fail(ErrorCode::kImpossible,
              fmt::format("table {}: expected {}, found {}", table.name, expected, found));
}

Result<void> check(const ShardedTable& table, const TablePlacement& placement) {
  if (table.features.size() != 1) {
    return refuse(table, "one feature, as graphs are built for",
                  fmt::format("{}", table.features.size()));
  }
  const TableFeature& feature = table.features.front();
  if (feature.poolings != 1) {
    return refuse(table, "one bag per sample", fmt::format("{}", feature.poolings));
  }
  if (feature.batch)
    return refuse(table, "the batch of the job", fmt::format("{}", *feature.batch));
  if (table.weighted) return refuse(table, "ids without weights", "weights");
  if (!table.pooled) return refuse(table, "a vector per bag", "one per id");
  constexpr int kFloat = 4;
  for (int bytes :
       {table.element_bytes, table.output_bytes.value_or(kFloat),
        table.forward_wire_bytes.value_or(kFloat), table.backward_wire_bytes.value_or(kFloat)}) {
    if (bytes != kFloat) {
      return refuse(table, "elements of 4 bytes", fmt::format("some of {}", bytes));
    }
  }
  const bool replicated = placement.type == ShardingType::kDataParallel;
  const bool in_hbm = placement.kernel == ComputeKernel::kFused ||
                      (replicated && placement.kernel == ComputeKernel::kDense);
  if (!in_hbm) return refuse(table, "kernel fused", to_string(placement.kernel));
  return {};
}

TableSharding sharding_of(ShardingType type) {
  switch (type) {
    case ShardingType::kDataParallel:
      return TableSharding::kDataParallel;
    case ShardingType::kColumnWise:
      return TableSharding::kColumnWise;
    case ShardingType::kTableColumnWise:
      return TableSharding::kTableColumnWise;
    case ShardingType::kRowWise:
      return TableSharding::kRowWise;
    case ShardingType::kTableRowWise:
      return TableSharding::kTableRowWise;
    case ShardingType::kGrid:
      return TableSharding::kGrid;
    case ShardingType::kTableWise:
    case ShardingType::kRowSplit:  // shard_sizes() refuses it
      break;
  }
  return TableSharding::kTableWise;
}

// Row blocks of one piece of columns stand side by side; the last of them ends the table.
std::vector<TableShard> with_offsets(const std::vector<ShardSize>& sizes, std::int64_t rows,
                                     const std::vector<std::int64_t>& ranks, std::size_t blocks) {
  std::vector<TableShard> shards;
  std::int64_t row = 0, column = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    shards.push_back({.row_offset = row,
                      .rows = sizes[i].rows,
                      .column_offset = column,
                      .columns = sizes[i].columns,
                      .rank = ranks[i]});
    row += sizes[i].rows;
    if ((i + 1) % blocks != 0) continue;
    PERFMODEL_CHECK(row == rows);
    row = 0;
    column += sizes[i].columns;
  }
  return shards;
}

}  // namespace

Result<PlacedTable> placed_table(const ShardedTable& table, const TablePlacement& placement,
                                 std::int64_t world, std::int64_t local_world) {
  ShardedTable cut = table;
  if (placement.least_columns > 0) cut.least_columns = placement.least_columns;
  const auto sizes = shard_sizes(cut, placement.type, world, local_world);
  if (!sizes) return Unexpected{sizes.error()};
  if (auto good = check(table, placement); !good) return Unexpected{good.error()};
  PlacedTable placed;
  placed.num_rows = table.rows;
  placed.dim = table.dim;
  placed.pooling_factor = table.features.front().pooling_factor;
  const ShardingType type = placement.type;
  if (type == ShardingType::kDataParallel) return placed;

  std::vector<std::int64_t> ranks = placement.ranks;
  if (ranks.empty() && type == ShardingType::kRowWise) {
    ranks.resize(sizes->size());
    std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  }
  if (ranks.size() != sizes->size()) {
    return refuse(table, fmt::format("a rank for each of {} shards", sizes->size()),
                  fmt::format("{}", ranks.size()));
  }
  const std::int64_t blocks = type == ShardingType::kRowWise ? world
                              : type == ShardingType::kTableRowWise || type == ShardingType::kGrid
                                  ? local_world
                                  : 1;
  placed.sharding = sharding_of(type);
  placed.shards = with_offsets(*sizes, table.rows, ranks, static_cast<std::size_t>(blocks));
  return placed;
}

}  // namespace perfmodel::sharding
