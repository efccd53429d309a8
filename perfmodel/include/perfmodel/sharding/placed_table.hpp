#pragma once

#include <cstdint>

#include "perfmodel/graph/build_torchrec_dlrm.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/embedding_shards.hpp"
#include "perfmodel/sharding/torchrec_plan.hpp"

namespace perfmodel::sharding {

/// A table of a study where a plan puts it, as the builder of execution graphs takes it: shards
/// with their offsets, in the order of shard_sizes().
///
/// Errors (kImpossible): those of shard_sizes(); another number of ranks than shards; what
/// build_torchrec_dlrm() does not write: several features or bags per sample, a batch of a
/// feature's own, weights per id, vectors per id, elements other than float32, vectors that are
/// exchanged in another type, rows that are not in HBM.
Result<PlacedTable> placed_table(const ShardedTable& table, const TablePlacement& placement,
                                 std::int64_t world, std::int64_t local_world);

}  // namespace perfmodel::sharding
