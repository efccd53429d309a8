#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "config_checks.hpp"
#include "torchrec_placement.hpp"

namespace perfmodel {
namespace {

// Products of two of these stay countable.
constexpr std::int64_t kLargest = std::int64_t{1} << 40;

Result<void> check_range(std::string_view what, std::int64_t value, std::int64_t least,
                         std::int64_t most = kLargest) {
  if (value >= least && value <= most) return {};
  return bad_config(fmt::format("{}: expected {} to {}, found {}", what, least, most, value));
}

Result<void> check_widths(std::string_view what, const std::vector<std::int64_t>& widths,
                          std::size_t least) {
  if (widths.size() < least) {
    return bad_config(
        fmt::format("{}: expected at least {} widths, found {}", what, least, widths.size()));
  }
  for (std::int64_t width : widths) {
    if (auto good = check_range(what, width, 1, 1 << 20); !good) return good;
  }
  return {};
}

// The shards of one table against its kind of sharding.
class ShardCheck {
 public:
  ShardCheck(const TorchrecDlrmConfig& config, std::size_t at)
      : config_(config),
        table_(config.tables[at]),
        what_(fmt::format("table {} ({})", at, to_string(table_.sharding))) {}

  Result<void> check() const {
    for (std::size_t i = 0; i < table_.shards.size(); ++i) {
      if (auto good = check_shard(i); !good) return good;
    }
    std::map<std::int64_t, std::vector<TableShard>> pieces;  // by first column
    for (const TableShard& shard : table_.shards) pieces[shard.column_offset].push_back(shard);
    std::int64_t column = 0;
    for (auto& [offset, blocks] : pieces) {
      if (offset != column) {
        return wrong(fmt::format("a shard from column {} on", column), fmt::format("{}", offset));
      }
      if (auto good = check_blocks(blocks); !good) return good;
      column += blocks.front().columns;
    }
    if (column != table_.dim) {
      return wrong(fmt::format("{} columns in all shards", table_.dim), fmt::format("{}", column));
    }
    return check_extent(pieces.size());
  }

 private:
  using Kind = TableSharding;

  Unexpected wrong(std::string_view expected, std::string_view found) const {
    return bad_config(fmt::format("{}: expected {}, found {}", what_, expected, found));
  }

  Result<void> check_shard(std::size_t i) const {
    const TableShard& shard = table_.shards[i];
    const auto part = [&](std::string_view of) { return fmt::format("{}, {} {}", what_, of, i); };
    if (auto good = check_range(part("rank of shard"), shard.rank, 0, config_.world_size - 1);
        !good) {
      return good;
    }
    if (auto good = check_range(part("columns of shard"), shard.columns, 1, table_.dim); !good) {
      return good;
    }
    return check_range(part("rows of shard"), shard.rows, 0, table_.num_rows);
  }

  // Number of ranks that share the rows of a piece: 1, a host's ranks, or all.
  std::int64_t block_count() const {
    if (table_.sharding == Kind::kRowWise) return config_.world_size;
    const bool by_host = table_.sharding == Kind::kTableRowWise || table_.sharding == Kind::kGrid;
    return by_host ? ranks_per_host(config_) : 1;
  }

  Result<void> check_blocks(std::vector<TableShard>& blocks) const {
    const std::int64_t count = block_count(), column = blocks.front().column_offset;
    if (static_cast<std::int64_t>(blocks.size()) != count) {
      return wrong(fmt::format("{} shards from column {} on", count, column),
                   fmt::format("{}", blocks.size()));
    }
    std::ranges::sort(blocks, {}, &TableShard::rank);
    if (count > 1 && blocks.front().rank % count != 0) {
      return wrong(fmt::format("shards on ranks {} to {}", blocks.front().rank / count * count,
                               blocks.front().rank / count * count + count - 1),
                   fmt::format("none on the first of them"));
    }
    std::int64_t row = 0;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::int64_t rank = blocks.front().rank + static_cast<std::int64_t>(i);
      if (blocks[i].rank != rank) {
        return wrong(fmt::format("one shard on rank {}", rank),
                     fmt::format("one on rank {}", blocks[i].rank));
      }
      if (blocks[i].columns != blocks.front().columns) {
        return wrong(fmt::format("{} columns on rank {}", blocks.front().columns, rank),
                     fmt::format("{}", blocks[i].columns));
      }
      if (blocks[i].row_offset != row) {
        return wrong(fmt::format("rows from {} on on rank {}", row, rank),
                     fmt::format("{}", blocks[i].row_offset));
      }
      row += blocks[i].rows;
    }
    if (row == table_.num_rows) return {};
    return wrong(fmt::format("{} rows from column {} on", table_.num_rows, column),
                 fmt::format("{}", row));
  }

  Result<void> check_extent(std::size_t pieces) const {
    const bool cuts_columns = table_.sharding == Kind::kColumnWise ||
                              table_.sharding == Kind::kTableColumnWise ||
                              table_.sharding == Kind::kGrid;
    if (pieces > 1 && !cuts_columns) {
      return wrong("all columns in each shard", fmt::format("{} pieces", pieces));
    }
    if (table_.sharding != Kind::kTableColumnWise) return {};
    const std::int64_t host = table_.shards.front().rank / ranks_per_host(config_);
    for (const TableShard& shard : table_.shards) {
      const std::int64_t other = shard.rank / ranks_per_host(config_);
      if (other != host) {
        return wrong(fmt::format("all shards on host {}", host),
                     fmt::format("one on host {}", other));
      }
    }
    return {};
  }

  const TorchrecDlrmConfig& config_;
  const PlacedTable& table_;
  std::string what_;
};

Result<void> check_table(const TorchrecDlrmConfig& config, std::size_t i) {
  const PlacedTable& table = config.tables[i];
  const std::string what = fmt::format("table {}", i);
  if (auto good = check_range(what + ", rows", table.num_rows, 1); !good) return good;
  if (table.dim != config.bottom_mlp.back()) {
    return bad_config(fmt::format("{}: expected dim {}, the last width of the bottom MLP, found {}",
                                  what, config.bottom_mlp.back(), table.dim));
  }
  if (!(table.pooling_factor > 0) || table.pooling_factor > 1e6) {
    return bad_config(fmt::format("{}: expected a pooling factor above 0 and up to 1e6, found {}",
                                  what, table.pooling_factor));
  }
  if (!table.shards.empty()) {
    if (table.sharding == TableSharding::kDataParallel) {
      return bad_config(fmt::format("{}: expected no shards of a data-parallel table, found {}",
                                    what, table.shards.size()));
    }
    return ShardCheck(config, i).check();
  }
  if (table.rank < PlacedTable::kDataParallel || table.rank >= config.world_size) {
    return bad_config(fmt::format("{}: expected a rank below {}, or {} for all of them, found {}",
                                  what, config.world_size, PlacedTable::kDataParallel, table.rank));
  }
  return {};
}

Result<void> check_hosts(const TorchrecDlrmConfig& config) {
  const std::int64_t local = config.local_world_size;
  if (local == 0) return {};
  if (auto good = check_range("ranks per host", local, 1, config.world_size); !good) return good;
  if (config.world_size % local == 0) return {};
  return bad_config(
      fmt::format("ranks per host: expected a divisor of {}, found {}", config.world_size, local));
}

}  // namespace

std::string_view to_string(TableSharding sharding) {
  switch (sharding) {
    case TableSharding::kDataParallel: return "data_parallel";
    case TableSharding::kTableWise: return "table_wise";
    case TableSharding::kColumnWise: return "column_wise";
    case TableSharding::kTableColumnWise: return "table_column_wise";
    case TableSharding::kRowWise: return "row_wise";
    case TableSharding::kTableRowWise: return "table_row_wise";
    case TableSharding::kGrid: break;
  }
  return "grid_shard";
}

Result<void> check_torchrec(const TorchrecDlrmConfig& config) {
  if (auto good = check_range("world size", config.world_size, 2, 1 << 16); !good) return good;
  if (auto good = check_hosts(config); !good) return good;
  if (auto good = check_range("rank", config.rank, 0, config.world_size - 1); !good) return good;
  if (auto good = check_range("batch per rank", config.batch_per_rank, 1, 1 << 24); !good) {
    return good;
  }
  if (auto good = check_widths("bottom MLP", config.bottom_mlp, 2); !good) return good;
  if (auto good = check_widths("top MLP", config.top_mlp, 1); !good) return good;
  if (config.top_mlp.back() != 1) {
    return bad_config(
        fmt::format("top MLP: expected a last width of 1, found {}", config.top_mlp.back()));
  }
  bool any_sharded = false;
  for (std::size_t i = 0; i < config.tables.size(); ++i) {
    if (auto good = check_table(config, i); !good) return good;
    any_sharded |= config.tables[i].kind() != TableSharding::kDataParallel;
  }
  if (!any_sharded) {
    return bad_config("tables: expected at least one that is sharded, found none");
  }
  return {};
}

}  // namespace perfmodel
