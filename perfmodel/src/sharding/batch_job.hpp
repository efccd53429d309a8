#pragma once

#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/string_pool.hpp"
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
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      const auto kind =
          static_cast<std::uint64_t>(key.type) << 8 | static_cast<std::uint64_t>(key.kernel);
      return hash_mix(hash_mix(hash_mix(kind, key.like), key.rows), key.columns);
    }
  };
  std::mutex mutex;
  std::unordered_map<Key, ShardLoad, KeyHash> loads;
  std::map<std::pair<std::uint32_t, TableSettings>, ShardLoad> at_home;
  std::map<std::uint32_t, bool> saves_ids;

  /// Returns the value of a key, made without the lock if the map does not have it.
  template <class Map, class Make>
  typename Map::mapped_type once(Map& known, const typename Map::key_type& key, const Make& make) {
    {
      const std::lock_guard lock(mutex);
      if (const auto found = known.find(key); found != known.end()) return found->second;
    }
    const typename Map::mapped_type value = make();
    const std::lock_guard lock(mutex);
    return known.emplace(key, value).first->second;
  }
};

struct JobLoad {
  std::vector<ShardLoad> ranks;
  double summed = 0, summed_gradients = 0;  // row-wise tables: bytes that each rank puts in
  double data_parallel_gradients = 0;
  double hashed_tables = 0;  // how many
  ShardLoad at_home;         // load of every rank for its own samples
};

}  // namespace perfmodel::sharding
