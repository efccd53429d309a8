#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"

/// How embedding tables are cut and placed on the GPUs of a job.
namespace perfmodel::sharding {

/// Names are TorchRec's. W ranks, L of them per host.
enum class ShardingType : std::uint8_t {
  kDataParallel,     ///< the whole table on each rank
  kTableWise,        ///< the whole table on one rank
  kColumnWise,       ///< pieces of its columns, each on one rank
  kRowWise,          ///< W blocks of rows, one per rank
  kTableRowWise,     ///< L blocks of rows on the ranks of one host
  kTableColumnWise,  ///< pieces of its columns on ranks of one host
  kGrid,             ///< pieces of its columns, each in L blocks of rows on one host
  kRowSplit,         ///< classes of rows on any ranks, whose sums are exchanged (HugeCTR)
  kHostRowSplit,     ///< the same on all ranks of some hosts, summed on each of them first
};
std::string_view to_string(ShardingType type);  ///< "table_wise"
/// By classes of rows on the ranks that a placement names: kRowSplit, kHostRowSplit.
bool is_row_split(ShardingType type);
/// Into pieces of the vectors: kColumnWise, kTableColumnWise, kGrid.
bool cuts_columns(ShardingType type);
std::optional<ShardingType> sharding_type(
    std::string_view name);  ///< the name from to_string(); none: unknown

/// Where rows lie and which kernels read them.
enum class ComputeKernel : std::uint8_t {
  kDense,            ///< HBM, an op per table, dense gradients: data-parallel tables
  kFused,            ///< HBM, one kernel for many tables, updated in its backward pass
  kFusedUvm,         ///< host memory, read over the link
  kFusedUvmCaching,  ///< host memory with a cache in HBM
  kHashed,           ///< rows are pieced together from an array that tables share (HashedArray)
};
std::string_view to_string(ComputeKernel kernel);  ///< "fused_uvm_caching"
std::optional<ComputeKernel> compute_kernel(std::string_view name);

enum class TableOptimizer : std::uint8_t { kNone, kSgd, kRowwiseAdagrad, kAdagrad, kAdam };
std::string_view to_string(TableOptimizer optimizer);  ///< "rowwise_adagrad"
std::optional<TableOptimizer> table_optimizer(std::string_view name);

/// A feature that reads a table.
struct TableFeature {
  double pooling_factor = 1;            ///< mean ids per bag
  double poolings = 1;                  ///< bags per sample
  std::optional<std::int64_t> batch{};  ///< samples per rank, if not the job's
  /// Samples of each rank, where they differ (stride_per_key_per_rank of a KeyedJaggedTensor of
  /// variable batches); `batch` is their mean then.
  std::vector<std::int64_t> rank_batches = {};

  /// Samples of all ranks; `batch_per_rank`: the job's.
  double samples_of_job(std::int64_t batch_per_rank, std::int64_t world) const;
  /// Samples of the rank that has most: the others wait for what it does at home.
  double most_samples(std::int64_t batch_per_rank) const;
};

/// LRU stack distances of a table's lookups.
struct CacheStatistics {
  double expected_lookups = 0;  ///< ids per rank and batch that are looked up in the cache
  /// Counts of distances in equal bins over the rows; empty: nothing is missed.
  std::vector<double> distances = {};
};

struct TableCache {
  double load_factor = 0.2;  ///< share of the rows that has a place in HBM
  bool given = false;        ///< somebody has said that share: a search leaves it
  bool prefetches = false;   ///< rows of the next batch are fetched during this one
  std::optional<CacheStatistics> statistics = {};
};

/// Row k is read with probability proportional to (k + shift)^-exponent; 0: all alike.
struct RowSkew {
  double exponent = 0, shift = 0;
  bool operator==(const RowSkew&) const = default;
};

/// The placements that a plan may choose for a table.
struct PlacementRules {
  std::vector<ShardingType> types = {};     ///< empty: any
  std::vector<ComputeKernel> kernels = {};  ///< empty: those that keep rows in HBM
  std::string keep_with = {};  ///< tables of one such name lie whole on one rank; empty: free
  std::vector<std::int64_t> forbidden_ranks = {};
  bool operator==(const PlacementRules&) const = default;
};

struct ShardedTable {
  std::string name = {};
  std::int64_t rows = 1, dim = 1;
  int element_bytes = 4;
  std::optional<int> output_bytes = {};  ///< per element of the pooled vector; none: the table's
  TableOptimizer optimizer = TableOptimizer::kRowwiseAdagrad;
  bool weighted = false;  ///< a weight per id
  bool pooled = true;     ///< a vector per bag; otherwise one per id
  /// Each rank sends an id once per batch and pools the vectors that come back itself (calibrated
  /// costs only; TorchRec does so for tables that are not pooled).
  bool deduplicated = false;
  /// So many of the most frequent rows have a copy on every rank (HugeCTR's hybrid embedding):
  /// their lookups stay at home, their gradients are all-reduced. Not of data-parallel tables.
  std::int64_t hot_rows = 0;

  /// Blocks of rows give partial sums, which the exchange adds up; otherwise vectors of ids.
  bool gives_sums() const { return pooled && !deduplicated; }
  std::vector<TableFeature> features = {{}};
  std::int64_t least_columns = 128;  ///< in a piece of columns
  TableCache cache = {};
  /// Bytes of an element on the wire, if vectors are exchanged in another type.
  std::optional<int> forward_wire_bytes = {}, backward_wire_bytes = {};
  RowSkew skew = {};
  PlacementRules rules = {};
};

/// The settings that a plan makes for a table, besides its shards; none: as the table has it.
struct TableSettings {
  std::optional<bool> deduplicated = {};
  std::optional<double> cache_share = {};  ///< TableCache::load_factor
  std::optional<int> wire_bytes = {};      ///< bytes of an element, forward and backward
  std::optional<std::int64_t> hot_rows = {};
  auto operator<=>(const TableSettings&) const = default;
  bool any() const { return deduplicated || cache_share || wire_bytes || hot_rows; }
};
/// The table as a plan with these settings has it.
ShardedTable settled(ShardedTable table, const TableSettings& settings);

struct ShardSize {
  std::int64_t rows = 0, columns = 0;
  bool operator==(const ShardSize&) const = default;
};

/// How a table is cut. Blocks of rows have ceil(rows / blocks) each, the last ones fewer or none;
/// pieces of columns the smallest divisor of dim that is at least `least_columns` wide and a
/// multiple of 4, or all columns where there is none. Row blocks of one piece of columns stand side
/// by side. Source: TorchRec, planner/shard_estimators and sharding_plan (2025-10).
///
/// Errors (kImpossible): sizes below 1, a world that is no multiple of its hosts, kRowSplit and
/// kHostRowSplit (which the number of their ranks cuts).
Result<std::vector<ShardSize>> shard_sizes(const ShardedTable& table, ShardingType type,
                                           std::int64_t world, std::int64_t local_world);

}  // namespace perfmodel::sharding
