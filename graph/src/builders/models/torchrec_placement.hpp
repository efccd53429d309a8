#pragma once

#include <cstdint>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "perfmodel/graph/build_recommenders.hpp"

namespace perfmodel {

/// Columns of a table, with all rows on one rank or blocks of rows on several.
struct TablePiece {
  std::size_t table = 0;
  std::int64_t column = 0, columns = 0;
  std::vector<std::int64_t> rows;     ///< per block
  std::vector<std::int64_t> lookups;  ///< per block, by the samples of one rank
};

/// Tables that are sharded in one way. Each piece has an owner, which is `blocks` neighbouring
/// ranks with a block of its rows each: one rank, the ranks of a host, or all ranks. Thus rank r
/// is block r % blocks of owner r / blocks.
struct ShardingGroup {
  TableSharding sharding = TableSharding::kTableWise;
  std::int64_t blocks = 1;
  std::vector<std::vector<TablePiece>> owners;

  std::int64_t num_owners() const { return static_cast<std::int64_t>(owners.size()); }
  std::int64_t world_size() const { return num_owners() * blocks; }
  /// Vectors of blocks are partial sums, to be added up.
  bool cuts_rows() const;
  /// The ranks of a host share each piece, and hosts exchange vectors.
  bool has_hosts() const;

  const std::vector<TablePiece>& on_rank(std::int64_t rank) const;
  /// In the order of the exchange, owner by owner.
  std::vector<const TablePiece*> pieces() const;
  /// Tables in the order of their first pieces.
  std::vector<std::size_t> tables() const;
  /// New place of each piece so that whole tables are contiguous; empty: they are.
  std::vector<std::size_t> column_order() const;

  std::int64_t lookups_on(std::int64_t rank) const;
  /// Lookups of all features that are sent, pieces of one table counted each.
  std::int64_t lookups() const;
  Shape widths() const;  ///< columns of each owner
};

/// Facts about the plan that all ranks know. Takes a good configuration.
class TorchrecPlacement {
 public:
  explicit TorchrecPlacement(const TorchrecDlrmConfig& config);

  const std::vector<ShardingGroup>& groups() const { return groups_; }
  /// Tables of which every rank has a copy.
  const std::vector<std::size_t>& replicated() const { return replicated_; }
  /// Tables of all groups, then the replicated ones: the order of the concatenated vectors.
  std::vector<std::size_t> tables() const;
  /// The table of each feature that is sent, or kept for a replicated table.
  std::vector<std::size_t> features() const;
  bool has_hosts() const;

  std::int64_t lookups(std::size_t table) const { return lookups_[table]; }
  std::int64_t replicated_lookups() const;

 private:
  std::vector<ShardingGroup> groups_;
  std::vector<std::size_t> replicated_;
  std::vector<std::int64_t> lookups_;  // per table, by the samples of one rank
};

/// Ranks of a host, all of them if the configuration says nothing else.
std::int64_t ranks_per_host(const TorchrecDlrmConfig& config);

/// See build_torchrec_dlrm() for the errors.
Result<void> check_torchrec(const TorchrecDlrmConfig& config);

}  // namespace perfmodel
