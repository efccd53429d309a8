#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "perfmodel/sharding/detail/shard_load.hpp"

/// Types that the sources of BatchModel share.
namespace perfmodel::sharding {

// Loads that were computed before: laws of skewed tables cost 0.1 ms each.
struct LoadCache {
  struct Key {
    std::uint32_t like = 0;
    ShardingType type;
    ComputeKernel kernel;
    std::int64_t rows = 0, columns = 0;
    TableSettings settings;
    auto operator<=>(const Key&) const = default;
  };
  std::mutex mutex;
  std::map<Key, ShardLoad> loads;
  std::map<std::pair<std::uint32_t, TableSettings>, ShardLoad> at_home;
  std::map<std::uint32_t, bool> saves_ids;
};

struct JobLoad {
  std::vector<ShardLoad> ranks;
  double summed = 0, summed_gradients = 0;  // row-wise tables: bytes that each rank puts in
  double data_parallel_gradients = 0;
  double hashed_tables = 0;  // how many
  ShardLoad at_home;         // load of every rank for its own samples
};

}  // namespace perfmodel::sharding
