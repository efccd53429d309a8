#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/embedding_shards.hpp"

/// Statistics of recorded indices: how often rows are read, how many ids a bag has.
namespace perfmodel::sharding {

/// How often the touched rows of a file of indices are read (the format of Meta's dlrm_datasets).
struct AccessHistogram {
  struct Bucket {
    double most_reads = 0;  ///< reads of the most-read row in it; infinite: no limit
    double rows = 0;        ///< share of the touched rows
    double lookups = 0;     ///< share of all lookups
  };
  std::vector<Bucket> buckets;  ///< by rising reads
  double unique_share = 0;      ///< touched rows over lookups; 0: not known
  std::string table;            ///< empty: of all tables
};

/// The histogram of a list of indices, with buckets of doubling reads.
struct IndexSample {
  std::int64_t lookups = 0, touched_rows = 0, largest = 0;
  AccessHistogram histogram;
};

/// Whole numbers of a `.npy` file (version 1 to 3, 32 or 64 bits, any shape) or of a CSV file with
/// one column `index`.
///
/// Errors, with the place: other types and orders, an index below 0, a file that ends early, none.
Result<IndexSample> read_index_sample(const std::filesystem::path& file);

/// A CSV of dlrm_datasets' statistics: reuse_gt, reuse_le (empty: no limit), frac_unique_rows,
/// frac_lookups, in rising order; with a column `table` a histogram for each.
///
/// Errors, with the place: missing columns, shares that do not sum to 1 (2 % for rounding), ranges
/// that leave a gap.
Result<std::vector<AccessHistogram>> read_access_histograms(const std::filesystem::path& file);

/// The Zipf law over `rows` rows whose most frequent ones take the same shares of lookups: the
/// exponent from 0 to 3 with the least squared error of the shares at the bounds of the buckets.
/// `touched`: rows that were read at all. Shift 0.
RowSkew fitted_skew(const AccessHistogram& histogram, double rows, double touched);

/// Ids of a bag from counts of bags with 0, 1, 2, ... of them: the mean.
///
/// Errors (kImpossible): no bags, counts below 0.
Result<double> mean_pooling(std::span<const double> bags);

}  // namespace perfmodel::sharding
