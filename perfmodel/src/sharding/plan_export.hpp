#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/torchrec_plan.hpp"

namespace perfmodel::sharding {

/// A plan as a table for other programs, a row per shard:
/// `table,type,kernel,rank,rows,columns,row_offset,column_offset`. Shards without rows are left
/// out. Classes of rows (kRowSplit: row k on the (k modulo n)-th of n ranks) have an empty
/// row_offset.
///
/// Errors (kImpossible): another number of placements than tables, what shard_sizes() and
/// shard_ranks() refuse, rows split over no ranks.
Result<std::string> plan_csv(std::span<const ShardedTable> tables,
                             std::span<const TablePlacement> placements, std::int64_t world,
                             std::int64_t local_world);

}  // namespace perfmodel::sharding
