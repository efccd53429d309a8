#include "torchrec_placement.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace perfmodel {
namespace {

// Uniform indices, shared out so that the blocks' parts add up to all of them.
std::vector<std::int64_t> share_lookups(std::int64_t lookups,
                                        const std::vector<std::int64_t>& rows) {
  const auto total = static_cast<double>(sum_of(rows));
  const auto below = [&](std::int64_t row) {
    return std::llround(static_cast<double>(lookups) * (static_cast<double>(row) / total));
  };
  std::vector<std::int64_t> shares;
  std::int64_t row = 0;
  for (std::int64_t block : rows) {
    shares.push_back(below(row + block) - below(row));
    row += block;
  }
  return shares;
}

std::vector<TableShard> shards_of(const PlacedTable& table) {
  if (!table.shards.empty()) return table.shards;
  return {{.rows = table.num_rows, .columns = table.dim, .rank = table.rank}};
}

std::int64_t blocks_of(TableSharding sharding, const TorchrecDlrmConfig& config) {
  switch (sharding) {
    case TableSharding::kRowWise: return config.world_size;
    case TableSharding::kTableRowWise:
    case TableSharding::kGrid: return ranks_per_host(config);
    default: return 1;
  }
}

// Shards of one piece of columns are the blocks of one owner: sorted by column and rank, the shards
// of a piece are neighbours.
void add_pieces(ShardingGroup& group, std::size_t at, const PlacedTable& table,
                std::int64_t lookups) {
  std::vector<TableShard> shards = shards_of(table);
  std::ranges::sort(shards, {}, [](const TableShard& shard) {
    return std::pair(shard.column_offset, shard.rank);
  });
  const auto blocks = static_cast<std::size_t>(group.blocks);
  for (std::size_t i = 0; i < shards.size(); i += blocks) {
    TablePiece piece;
    piece.table = at;
    piece.column = shards[i].column_offset;
    piece.columns = shards[i].columns;
    for (std::size_t block = 0; block < blocks; ++block) {
      piece.rows.push_back(shards[i + block].rows);
    }
    piece.lookups = share_lookups(lookups, piece.rows);
    group.owners[shards[i].rank / group.blocks].push_back(std::move(piece));
  }
}

}  // namespace

std::int64_t ranks_per_host(const TorchrecDlrmConfig& config) {
  return config.local_world_size == 0 ? config.world_size : config.local_world_size;
}

bool ShardingGroup::cuts_rows() const { return sharding == TableSharding::kRowWise || has_hosts(); }

bool ShardingGroup::has_hosts() const {
  return sharding == TableSharding::kTableRowWise || sharding == TableSharding::kGrid;
}

const std::vector<TablePiece>& ShardingGroup::on_rank(std::int64_t rank) const {
  return owners[rank / blocks];
}

std::vector<const TablePiece*> ShardingGroup::pieces() const {
  std::vector<const TablePiece*> all;
  for (const auto& owned : owners) {
    for (const TablePiece& piece : owned) all.push_back(&piece);
  }
  return all;
}

std::vector<std::size_t> ShardingGroup::tables() const {
  std::vector<std::size_t> found;
  for (const TablePiece* piece : pieces()) {
    if (std::ranges::find(found, piece->table) == found.end()) found.push_back(piece->table);
  }
  return found;
}

std::vector<std::size_t> ShardingGroup::column_order() const {
  const auto all = pieces();
  std::map<std::size_t, std::size_t> place;  // place of a table among the tables
  for (std::size_t table : tables()) place.try_emplace(table, place.size());
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(
      order, {}, [&](std::size_t i) { return std::pair(place.at(all[i]->table), all[i]->column); });
  if (std::ranges::is_sorted(order)) return {};
  return order;
}

std::int64_t ShardingGroup::lookups_on(std::int64_t rank) const {
  std::int64_t sum = 0;
  const auto block = static_cast<std::size_t>(rank % blocks);
  for (const TablePiece& piece : on_rank(rank)) sum += piece.lookups[block];
  return sum;
}

std::int64_t ShardingGroup::lookups() const {
  std::int64_t sum = 0;
  for (const TablePiece* piece : pieces()) sum += sum_of(piece->lookups);
  return sum;
}

Shape ShardingGroup::widths() const {
  Shape widths;
  for (const auto& owned : owners) {
    widths.push_back(0);
    for (const TablePiece& piece : owned) widths.back() += piece.columns;
  }
  return widths;
}

TorchrecPlacement::TorchrecPlacement(const TorchrecDlrmConfig& config) {
  for (std::size_t i = 0; i < config.tables.size(); ++i) {
    const PlacedTable& table = config.tables[i];
    lookups_.push_back(
        std::llround(table.pooling_factor * static_cast<double>(config.batch_per_rank)));
    const TableSharding kind = table.kind();
    if (kind == TableSharding::kDataParallel) {
      replicated_.push_back(i);
      continue;
    }
    auto group = std::ranges::find(groups_, kind, &ShardingGroup::sharding);
    if (group == groups_.end()) {
      const std::int64_t blocks = blocks_of(kind, config);
      groups_.push_back({.sharding = kind, .blocks = blocks, .owners = {}});
      group = groups_.end() - 1;
      group->owners.resize(config.world_size / blocks);
    }
    add_pieces(*group, i, table, lookups_.back());
  }
}

std::vector<std::size_t> TorchrecPlacement::tables() const {
  std::vector<std::size_t> all;
  for (const ShardingGroup& group : groups_) {
    const auto tables = group.tables();
    all.insert(all.end(), tables.begin(), tables.end());
  }
  all.insert(all.end(), replicated_.begin(), replicated_.end());
  return all;
}

std::vector<std::size_t> TorchrecPlacement::features() const {
  std::vector<std::size_t> all;
  for (const ShardingGroup& group : groups_) {
    for (const TablePiece* piece : group.pieces()) all.push_back(piece->table);
  }
  all.insert(all.end(), replicated_.begin(), replicated_.end());
  return all;
}

bool TorchrecPlacement::has_hosts() const {
  return std::ranges::any_of(groups_, &ShardingGroup::has_hosts);
}

std::int64_t TorchrecPlacement::replicated_lookups() const {
  std::int64_t sum = 0;
  for (std::size_t table : replicated_) sum += lookups(table);
  return sum;
}

}  // namespace perfmodel
