#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loaded_study.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/rank_plans.hpp"

namespace perfmodel::sharding {

/// How a caller follows searches and ends them; every part may be left out.
struct SearchWatch {
  /// Called when a search begins; the search keeps the answer until it ends.
  std::function<std::shared_ptr<void>()> begin_search = {};
  /// Called a few times a second.
  std::function<void(const SearchProgress&)> progress = {};
  /// True ends a search with its best plans so far.
  std::function<bool()> is_stopped = {};
  /// Called with the name of each question of a study.
  std::function<void(const std::string&)> begin_question = {};
};

/// A plan with its price in one of the two cost modes.
struct PricedPlan {
  std::string name;
  std::vector<TablePlacement> placements;
  std::optional<BatchTime> time;
  std::optional<PlanAdvice> advice;
  std::optional<TorchrecRating> rating;

  /// Microseconds, or milliseconds of a rating.
  double cost() const { return time ? time->predicted_us : rating ? rating->rating_ms() : 0; }
  /// Bytes of HBM on the fullest GPU.
  double most_memory() const;
  /// The host launches op by op and is the limit.
  bool is_host_bound() const { return time->host_us >= time->predicted_us; }
};

/// Tables in a hashed array, and the best plan without it.
struct CompressionReport {
  struct Row {
    std::int64_t world = 0;
    std::optional<double> sharded_us, hashed_us;  ///< nothing: does not fit
  };
  std::vector<Row> rows;
  double iterations_multiplier = 1;
  double array_elements = 0, table_elements = 0;  ///< in tables that may be hashed
  /// Elements of the tables per element of the array.
  double factor() const { return table_elements / array_elements; }
  std::optional<std::int64_t> sharded_fits, hashed_fits;  ///< fewest GPUs

  /// Whether so many GPUs are faster with the array, or fit nothing else.
  bool hashed_wins(std::size_t row) const;
};

/// Plans of a study with their prices.
struct ShardReport {
  const LoadedStudy* loaded = nullptr;
  std::vector<PricedPlan> plans;           ///< a search's: best first
  double memory_cap = 0;                   ///< bytes per GPU
  std::vector<std::string> warnings = {};  ///< in addition to `loaded->warnings`
  struct Search {
    double lower_bound = 0;  ///< in the unit of the costs
    bool proved_best = false, stopped = false;
    std::uint64_t moves = 0;
    double seconds = 0;
  };
  std::optional<Search> search = {};
  std::optional<CompressionReport> compression = {};
};

/// The `keep` best plans for the study, in its costs. The report points to `loaded`. Errors: the
/// search's, which name the missing memory.
Result<ShardReport> search_for_plans(const LoadedStudy& loaded, std::size_t keep,
                                     const SearchWatch& watch = {});

/// Given plans, priced. The report points to `loaded`.
struct NamedPlacements {
  std::string name;
  std::vector<TablePlacement> placements;
};
Result<ShardReport> price_plans(const LoadedStudy& loaded,
                                const std::vector<NamedPlacements>& plans);

/// The best hashed plan (the study's) and the best without hashing, over numbers of GPUs.
Result<CompressionReport> compare_compression(const LoadedStudy& loaded,
                                              const SearchWatch& watch = {});

}  // namespace perfmodel::sharding
