#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/torchrec_plan.hpp"

namespace perfmodel::sharding {

/// Every rank has a part of such a table: shard k lies on rank k unless a plan says otherwise.
bool is_everywhere(ShardingType type);

/// The rank of each of `shards` shards. Errors (kImpossible): another number of ranks than shards,
/// ranks outside of the job, ranks of one host that are not, a rank twice where each needs its own.
Result<std::vector<std::int64_t>> shard_ranks(const ShardedTable& table,
                                              const TablePlacement& placement, std::size_t shards,
                                              std::int64_t world, std::int64_t local_world);

}  // namespace perfmodel::sharding
