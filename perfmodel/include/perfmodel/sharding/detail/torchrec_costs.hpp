#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/embedding_shards.hpp"

/// TorchRec's own estimates (planner, a48cef79 of 2025-10), to the bit: an index to rank plans by,
/// no time. Bandwidths are flat, tables are read one by one, nothing overlaps.
namespace perfmodel::sharding {

/// One kind of host in a job. Bandwidths in bytes per millisecond, sizes in bytes.
struct TorchrecTopology {
  std::int64_t world = 8, local_world = 8;  ///< ranks; ranks per host
  std::int64_t hbm_cap = std::int64_t{32} << 30, ddr_cap = std::int64_t{128} << 30;  ///< per rank
  double hbm_bandwidth = 897 * kGiBPerSecond, ddr_bandwidth = 51 * kGiBPerSecond;
  double host_link_bandwidth = 32 * kGiBPerSecond;  ///< between HBM and host memory
  double intra_host_bandwidth = 600 * kGiBPerSecond, inter_host_bandwidth = 12.5 * kGiBPerSecond;
  double backward_compute_multiplier = 2, weighted_backward_multiplier = 1;

  static constexpr double kGiBPerSecond = static_cast<double>(1 << 30) / 1000;
};

struct TorchrecSettings {
  std::int64_t batch = 512;  ///< samples per rank
  /// Batches whose inputs lie on a rank at once.
  enum class Pipeline : std::uint8_t {
    kNone,
    kSparseDist,
    kPrefetchSparseDist
  } pipeline = Pipeline::kNone;
  bool embeddings_at_peak = false;  ///< vectors are alive when memory is fullest
  bool inference = false;
};

/// Costs of shards on the rank that holds them.
struct TorchrecCost {
  double forward_compute_ms = 0, forward_comms_ms = 0;
  double backward_compute_ms = 0, backward_comms_ms = 0, prefetch_ms = 0;
  std::int64_t hbm_bytes = 0, ddr_bytes = 0;

  double total_ms() const {
    return forward_compute_ms + forward_comms_ms + backward_compute_ms + backward_comms_ms +
           prefetch_ms;
  }
  TorchrecCost& operator+=(const TorchrecCost& other);
};

struct TorchrecShardCost : TorchrecCost {
  ShardSize size;
};

/// Costs of all shards of a table, in the order of shard_sizes().
///
/// Errors (kImpossible): what shard_sizes() refuses; a data-parallel table that is not dense or the
/// other way round; features, bandwidths or shares that are no positive numbers.
Result<std::vector<TorchrecShardCost>> torchrec_costs(const ShardedTable& table, ShardingType type,
                                                      ComputeKernel kernel,
                                                      const TorchrecTopology& topology,
                                                      const TorchrecSettings& settings);

}  // namespace perfmodel::sharding
