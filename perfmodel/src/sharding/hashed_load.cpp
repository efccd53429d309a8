#include <algorithm>
#include <cmath>

#include "optimizer_state.hpp"
#include "perfmodel/sharding/detail/shard_load.hpp"

/// Traffic of hashed arrays. Source: the public CUDA code of ROBE (universal_memory_allocation,
/// MIT), read for its passes; nothing of it was timed.
namespace perfmodel::sharding {
namespace {

constexpr double kSector = 32, kIndexBytes = 8;

}  // namespace

ShardLoad hashed_lookup_load(const ShardedTable& table, const HashedArray& array,
                             const LoadSettings& settings, const Gpu& gpu) {
  constexpr double kUsableCache = 0.9, kBytesPerSortedIndex = 335;
  double bags = 0, ids = 0;
  for (const TableFeature& feature : table.features) {
    const auto samples = feature.most_samples(settings.batch_per_rank) * feature.poolings;
    bags += samples;
    ids += samples * feature.pooling_factor;
  }
  const auto columns = static_cast<double>(table.dim);
  const double item = array.element_bytes;
  const double chunk = std::min(array.chunk, columns);
  const double chunks = std::ceil(columns / chunk);
  const double read = ids * chunks * (chunk * item + kSector - item);
  const double cache = std::max(gpu.l2_size.value, gpu.last_level_cache_size.value);
  const double hit = std::min(1.0, kUsableCache * cache / (array.elements * item));
  const double output = table.output_bytes.value_or(table.element_bytes);
  const double indices = kIndexBytes * ids * (array.reference_kernel ? columns : chunks);
  const double streams = bags * columns * output + ids * kIndexBytes + 2 * indices;

  ShardLoad load;
  load[Load::kForwardBags] = bags;
  load[Load::kForwardIds] = ids;
  load[Load::kFeatures] = static_cast<double>(table.features.size());
  load[Load::kForwardL2Bytes] = streams + read;
  load[Load::kForwardDramBytes] = streams + (1 - hit) * read;
  if (array.reference_kernel) {
    load[Load::kBackwardDramBytes] = kBytesPerSortedIndex * ids * columns;
    load[Load::kBackwardL2Bytes] = load[Load::kBackwardDramBytes];
  } else {
    load[Load::kSortedIds] = ids * chunks;
    load[Load::kBackwardDramBytes] = bags * columns * output + 2 * (1 - hit) * read + indices;
    load[Load::kBackwardL2Bytes] = ids * columns * output + 2 * read + indices;
  }
  load[Load::kBufferBytes] = ids * kIndexBytes + indices + 2 * bags * columns * output;
  return load;
}

ShardLoad hashed_array_load(const HashedArray& array, TableOptimizer optimizer) {
  const double weights = array.elements * array.element_bytes;
  const double state = array.elements * kStateBytes * state_numbers(optimizer, 1);
  ShardLoad load;
  load[Load::kWeightBytes] = 2 * weights;  // and the gradient
  load[Load::kOptimizerBytes] = state;
  load[Load::kSortedRows] = array.elements;
  // Gradient cleared and read, weights and state read and written.
  load[Load::kBackwardDramBytes] = 4 * weights + 2 * state;
  load[Load::kBackwardL2Bytes] = load[Load::kBackwardDramBytes];
  return load;
}

}  // namespace perfmodel::sharding
