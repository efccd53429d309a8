#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "perfmodel/graph/build_recommenders.hpp"

namespace perfmodel::test_support {

/// Blocks of rows of a piece of columns on neighbouring ranks, as TorchRec cuts them.
inline std::vector<TableShard> row_blocks(std::int64_t rows, std::int64_t column,
                                          std::int64_t columns, std::int64_t first_rank,
                                          std::int64_t blocks) {
  std::vector<TableShard> shards;
  const std::int64_t block = (rows + blocks - 1) / blocks;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t begin = std::min(rows, i * block), end = std::min(rows, begin + block);
    shards.push_back({.row_offset = begin,
                      .rows = end - begin,
                      .column_offset = column,
                      .columns = columns,
                      .rank = first_rank + i});
  }
  return shards;
}

/// Equal pieces of columns on these ranks.
inline std::vector<TableShard> column_pieces(std::int64_t rows, std::int64_t columns,
                                             const std::vector<std::int64_t>& ranks) {
  std::vector<TableShard> shards;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    shards.push_back({.rows = rows,
                      .column_offset = static_cast<std::int64_t>(i) * columns,
                      .columns = columns,
                      .rank = ranks[i]});
  }
  return shards;
}

/// 2 hosts of 4 ranks, dim 16, 6 samples per rank, tables sharded in every way; rank 7 has no part
/// of the table-wise and column-wise ones. The grid's first piece of columns is on host 1.
inline TorchrecDlrmConfig every_sharding(std::int64_t rank) {
  using Kind = TableSharding;
  TorchrecDlrmConfig config;
  config.bottom_mlp = {4, 16};
  config.top_mlp = {6, 1};
  config.batch_per_rank = 6;
  config.world_size = 8;
  config.local_world_size = 4;
  config.rank = rank;
  const auto add = [&](std::int64_t rows, double pooling, Kind kind,
                       std::vector<TableShard> shards) {
    config.tables.push_back({.num_rows = rows,
                             .dim = 16,
                             .pooling_factor = pooling,
                             .shards = std::move(shards),
                             .sharding = kind});
  };
  config.tables.push_back({100, 16, 3, 1});
  add(40, 2, Kind::kColumnWise, column_pieces(40, 8, {6, 2}));
  add(90, 4, Kind::kRowWise, row_blocks(90, 0, 16, 0, 8));
  config.tables.push_back({7, 16, 2, PlacedTable::kDataParallel});
  add(50, 1, Kind::kTableRowWise, row_blocks(50, 0, 16, 4, 4));
  add(30, 2.5, Kind::kTableColumnWise, column_pieces(30, 4, {0, 1, 2, 3}));
  auto grid = row_blocks(60, 0, 8, 4, 4);
  const auto second = row_blocks(60, 8, 8, 0, 4);
  grid.insert(grid.end(), second.begin(), second.end());
  add(60, 2, Kind::kGrid, grid);
  add(5, 1, Kind::kRowWise, row_blocks(5, 0, 16, 0, 8));  // three ranks have no row of it
  add(20, 1, Kind::kTableWise, column_pieces(20, 16, {5}));
  return config;
}

}  // namespace perfmodel::test_support
