#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/sharding/detail/plan_space.hpp"

namespace perfmodel::sharding {

/// The memory that a space lacks, for messages that name tables.
struct Shortfall {
  /// Over all tables, each in the option that takes least, against all ranks. More than there is:
  /// no plan fits. Otherwise one may, or shards are too large to fill the ranks with.
  std::int64_t least_hbm_bytes = 0, hbm_bytes = 0;
  std::int64_t least_ddr_bytes = 0, ddr_bytes = 0;
  struct Table {
    std::uint32_t table = 0;
    /// Largest shard of the option that comes nearest to fitting.
    std::int64_t shard_hbm_bytes = 0, shard_ddr_bytes = 0;
  };
  std::vector<Table> tables;  ///< whose shards are larger than a rank in all options
};
Shortfall find_shortfall(const PlanSpace& space);

}  // namespace perfmodel::sharding
