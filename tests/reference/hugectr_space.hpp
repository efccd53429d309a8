#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/plan_search.hpp"

/// Costs of the planner script that NVIDIA published with its HugeCTR submissions to MLPerf
/// Training (DLRM-DCNv2, v3.0 and v3.1): no times.
namespace perfmodel::sharding {

struct HugectrSettings {
  std::int64_t nodes = 1, gpus_per_node = 8;
  /// Rows of a table are spread over buckets: GPUs ("auto") or nodes ("hier_auto"), whose GPUs then
  /// share them.
  bool hierarchical = false;
  double memory_to_exchange = 7;  ///< ratio of bandwidths (mem_comm_bw_ratio)
  double work_ratio = 4;          ///< work at the memory over work at the links
  double data_parallel_below_gb = 0.008, memory_cap_gb = 60;  ///< a table; a bucket (GB, decimal)
  std::int64_t row_elements = 128;                            ///< ev_size
  double bytes_per_element = 8;

  std::int64_t buckets() const { return hierarchical ? nodes : nodes * gpus_per_node; }
  double cost_per_shard() const { return memory_to_exchange / work_ratio; }
};

/// Costs of buckets: ids per sample of the shards they hold (a table's, divided by its shards) plus
/// a constant per shard. Data-parallel tables cost nothing.
struct HugectrCost {
  struct Bucket {
    double hotness = 0, tables = 0, gigabytes = 0;
  };
  std::vector<Bucket> buckets;
  double largest() const;  ///< hotness + tables of the worst bucket
};

/// Below the threshold, every GPU has the table.
bool is_data_parallel(const ShardedTable& table, const HugectrSettings& settings);

/// Cost of a shard matrix: the tables of each bucket, by index. Tables count with their rows and
/// the sum of the pooling factors of their features.
///
/// Errors (kImpossible): another number of buckets; tables that do not exist, are twice in a
/// bucket, in none, or data-parallel and not in all.
Result<HugectrCost> hugectr_cost(std::span<const ShardedTable> tables,
                                 const std::vector<std::vector<std::int64_t>>& matrix,
                                 const HugectrSettings& settings);

/// Tables that are cut may have 1 to buckets() shards. Ranks of the space are buckets.
///
/// Errors (kImpossible): sizes or costs that are no positive numbers.
Result<PlanSpace> make_hugectr_space(std::span<const ShardedTable> tables,
                                     const HugectrSettings& settings);

/// The matrix of a plan of that space.
std::vector<std::vector<std::int64_t>> shard_matrix(const PlanSpace& space, const FoundPlan& plan);

}  // namespace perfmodel::sharding
