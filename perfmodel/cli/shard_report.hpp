#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/rank_plans.hpp"
#include "shard_study.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// A plan with its price in one of the two cost modes.
struct ReportedPlan {
  std::string name;
  std::vector<sharding::TablePlacement> placements;
  std::optional<sharding::BatchTime> time;
  std::optional<sharding::PlanAdvice> advice;
  std::optional<sharding::TorchrecRating> rating;

  /// Microseconds, or milliseconds of a rating.
  double cost() const { return time ? time->predicted_us : rating ? rating->rating_ms() : 0; }
};

/// Tables in a hashed array beside the best plan without it.
struct CompressionReport {
  struct Row {
    std::int64_t world = 0;
    std::optional<double> sharded_us, hashed_us;  ///< nothing: does not fit
  };
  std::vector<Row> rows;
  double iterations_multiplier = 1;
  double array_elements = 0, table_elements = 0;  ///< of the tables that may be hashed
  /// Elements of the tables over those of the array.
  double factor() const { return table_elements / array_elements; }
  std::optional<std::int64_t> sharded_fits, hashed_fits;  ///< fewest GPUs

  /// Whether so many GPUs are faster with the array, or fit nothing else.
  bool hashed_wins(std::size_t row) const {
    const Row& of = rows[row];
    if (!of.hashed_us || !of.sharded_us) return of.hashed_us.has_value();
    return *of.hashed_us * iterations_multiplier < *of.sharded_us;
  }
};

/// What `shard` prints and draws.
struct ShardReport {
  const LoadedStudy* loaded = nullptr;
  std::vector<ReportedPlan> plans;         ///< best first, where they were searched for
  double memory_cap = 0;                   ///< bytes per GPU
  std::vector<std::string> warnings = {};  ///< beside those of `loaded`
  struct Search {
    double lower_bound = 0;  ///< in the unit of the costs
    bool proved_best = false, stopped = false;
    std::uint64_t moves = 0;
    double seconds = 0;
  };
  std::optional<Search> search;
  std::optional<CompressionReport> compression;
};

std::string shard_text(const ShardReport& report, bool bold);
Json shard_json(const ShardReport& report);

/// Load and memory of every GPU under the first plan.
Result<std::string> shard_svg(const ShardReport& report);

/// "0-7", "0 3 5", "all".
std::string ranks_text(const sharding::TablePlacement& placement, std::int64_t world);

/// "distinct ids, 2-byte wire, 10,000 hot rows, cache 5 %"; empty: as the table says.
std::string settings_of(const sharding::TablePlacement& placement);
/// "2-byte wire for 12 of 26 tables, distinct ids for 3"; empty: all tables are as they say.
std::string chosen_settings(const ReportedPlan& plan);

/// "3.65 ms", "812 us".
std::string time_text(double us);
std::string bytes_text(double bytes);
/// "16.51 M/s".
std::string samples_text(double per_second);

}  // namespace perfmodel::cli
