#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/sharding/detail/torchrec_plan.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

/// Loads of shards on the rank that holds them; all add up. Bytes per batch unless said otherwise.
enum class Load : std::uint8_t {
  // lookups in HBM: one kernel for all tables of a rank, one sort for its backward pass
  kForwardL2Bytes,
  kForwardDramBytes,  ///< rows that miss counted as often as they cost (see embedding_rates.hpp)
  kForwardBags,
  kForwardIds,
  kBackwardL2Bytes,
  kBackwardDramBytes,
  kSortedIds,
  kSortedRows,  ///< rows of tables, which decide how many bits a sort looks at
  kFeatures,    ///< lookups, for software that takes tables one by one
  // host memory
  kForwardLinkBytes,  ///< rows read over the link by the forward kernel
  kBackwardLinkBytes,
  kPrefetchLinkBytes,  ///< rows of the next batch fetched into the cache, old ones written back
  // exchanges
  kIdBytes,               ///< that come from all ranks, this one included
  kVectorBytes,           ///< pooled vectors for all ranks, forward
  kGradientBytes,         ///< the same backward
  kHostSumBytes,          ///< partial sums for the ranks of the host, forward
  kHostSumGradientBytes,  ///< the same backward
  // memory
  kWeightBytes,
  kOptimizerBytes,
  kCacheBytes,   ///< caches of rows in host memory
  kBufferBytes,  ///< buffers of ids and vectors
  kHostBytes,    ///< in host memory
  kCount
};

class ShardLoad {
 public:
  double& operator[](Load load) { return values_[static_cast<std::size_t>(load)]; }
  double operator[](Load load) const { return values_[static_cast<std::size_t>(load)]; }
  ShardLoad& operator+=(const ShardLoad& other) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] += other.values_[i];
    return *this;
  }
  bool operator==(const ShardLoad&) const = default;
  friend ShardLoad operator*(double factor, ShardLoad load) {
    for (double& value : load.values_) value *= factor;
    return load;
  }
  double hbm_bytes() const {
    return (*this)[Load::kWeightBytes] + (*this)[Load::kOptimizerBytes] +
           (*this)[Load::kCacheBytes] + (*this)[Load::kBufferBytes];
  }

 private:
  std::array<double, static_cast<std::size_t>(Load::kCount)> values_{};
};

/// Who runs the tables.
enum class TableSoftware : std::uint8_t {
  /// One kernel for all tables of a rank, with sort, sum and update fused after it (FBGEMM,
  /// HugeCTR).
  kFused,
  /// A lookup per feature; gradients are lists of rows that are sorted, made distinct, summed and
  /// handed to an optimizer op per table (TensorFlow's IndexedSlices, torch.nn with sparse=True).
  kPerTable,
};

/// How one table is cut, in numbers that costs need. `parts`: shards that share its rows (blocks of
/// rows, or 1), each with `columns` columns.
struct ShardCut {
  std::int64_t rows = 1, columns = 1;
  double parts = 1;
  bool everywhere = false;  ///< every rank has the shard for its own samples only (data-parallel)
};

struct LoadSettings {
  std::int64_t world = 1, batch_per_rank = 1;
  TorchrecSettings::Pipeline pipeline = TorchrecSettings::Pipeline::kSparseDist;
  TableSoftware software = TableSoftware::kFused;
};

/// Loads of one shard. A block of rows gets 1 / parts of the ids, since hashed ids spread evenly,
/// except for the most frequent row, which is on one rank alone: the busiest rank gets p_1 + (1 -
/// p_1) / parts (deduplicated tables: 1 / parts of the distinct ids).
///
/// W ranks, S samples each, L ids per bag: a shard sees W S L / parts ids in W S bags. Rows in host
/// memory cross the link once per miss of L2 (UVM), or once per miss of their cache in HBM (Che's
/// approximation for an LRU cache under the table's skew), which also writes dropped rows back:
/// during an earlier batch with pipeline "prefetch", else while the kernel waits. Vectors that
/// travel in another type are cast once on each side, which moves both types through memory.
ShardLoad shard_load(const ShardedTable& table, const ShardCut& cut, ComputeKernel kernel,
                     ShardingType type, const LoadSettings& settings, const Gpu& gpu);

/// Lookups of one table in a hashed array, for a rank's own samples. Per id and chunk of Z columns
/// of w bytes: (Z w + 32 - w) / 32 sectors at a random place, of which 0.9 L2 / (m w) hit. I ids, D
/// columns; the reference kernel also writes and reads 8 I D bytes of indices, and its backward
/// pass moves 335 bytes per index (copies, a radix sort of 8 passes, unique, sums).
ShardLoad hashed_lookup_load(const ShardedTable& table, const HashedArray& array,
                             const LoadSettings& settings, const Gpu& gpu);

/// The array itself, once per rank: weights, a dense gradient, the optimizer's state and its pass
/// over all elements.
ShardLoad hashed_array_load(const HashedArray& array, TableOptimizer optimizer);

/// Work of a rank for its own samples of a deduplicated table, wherever the table is stored: sort
/// the ids, write the place of each, sum the vectors that come back, and the reverse. I ids of D
/// columns, U of them distinct: 16 I bytes of places, I rows through L2, U vectors from memory.
ShardLoad deduplication_load(const ShardedTable& table, const LoadSettings& settings);

/// Copies of a table's hot rows on one rank: lookups of its own samples, a dense gradient.
ShardLoad hot_rows_load(const ShardedTable& table, const LoadSettings& settings, const Gpu& gpu);

/// Work of every rank for its own samples of a table that is not data-parallel: both of the above
/// if the table needs them, and casts of vectors received (and gradients sent) in another type.
ShardLoad load_at_home(const ShardedTable& table, const LoadSettings& settings, const Gpu& gpu);
bool has_load_at_home(const ShardedTable& table);  ///< false: the load is 0

/// Distinct ids of one rank's batch that leave it; hot rows stay.
double distinct_ids(const ShardedTable& table, std::int64_t batch_per_rank);

/// Bytes of a table's vectors for all samples of a job, as they go over the wire.
struct VectorBytes {
  double forward = 0, backward = 0;
};
VectorBytes vector_bytes(const ShardedTable& table, std::int64_t world, std::int64_t batch);

/// Times of a rank's lookups from the sum of its loads; 0 where it has none.
struct LookupTime {
  double forward_us = 0, backward_us = 0, prefetch_us = 0;
};
LookupTime lookup_time(const ShardLoad& sum, TableSoftware software, const Gpu& gpu,
                       const KernelModels& models);

/// Cost of splitting, joining and staging in an exchange of a rank's vectors, each way
/// [us/byte]: 21.3 us/MB for software that takes tables one by one, fitted with its other
/// constants.
double exchange_copy_us_per_byte(TableSoftware software);

/// Work of every rank of several for each feature of the whole model, whoever looks it up [us]:
/// TensorFlow reshapes ids, splits vectors and slices gradients one by one. Fitted, too.
double interaction_us_per_feature(TableSoftware software);

/// Effective bytes per microsecond of reads of single rows over the host link.
double row_link_bytes_per_us(const Gpu& gpu);

}  // namespace perfmodel::sharding
