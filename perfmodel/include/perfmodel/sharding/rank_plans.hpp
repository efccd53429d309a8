#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"
#include "perfmodel/sharding/detail/plan_search.hpp"

namespace perfmodel::sharding {

struct RankedPlan {
  std::vector<TablePlacement> placements;
  BatchTime time;
  double objective_us = 0;  ///< objective of the search
};

struct RankedPlans {
  /// Fastest first; each shards another number of tables in some way.
  std::vector<RankedPlan> plans;
  /// No plan that fits is faster, by BatchModel::time() [us].
  double lower_bound_us = 0;
  bool stopped = false;  ///< by time or by the caller, before the search was done
  std::uint64_t moves = 0;
  double seconds = 0;
};

/// The best plans for a study: searched by phases (`BatchModel::space`, with several guesses of the
/// work that hides exchanges), scheduled in full, changed table by table as `BatchModel::time`
/// judges, and sorted by that; among equally fast ones the plan comes first that leaves more memory
/// on its fullest rank. Errors: as for the search, which names the tables that do not fit.
Result<RankedPlans> rank_plans(const BatchModel& model, const SearchOptions& options);

/// The bottleneck of a plan, and ways to relieve it.
struct PlanAdvice {
  BatchPart bottleneck = BatchPart::kLookupForward;
  double free_gain_us = 0;  ///< if that part took no time at all
  std::size_t rank = 0;     ///< that is slowest in it
  /// The table that takes most of it on that rank, where tables do.
  std::optional<std::size_t> table;
  double table_share = 0;
  /// The change that gains most, of those tried one by one; empty: none of them helps.
  std::string fix;
  double fix_gain_us = 0;
};

/// Schedules the batch again with each part set to zero to find the bottleneck; then tries, one at
/// a time: every other way to cut the heaviest table of the slowest rank, moving it to the lightest
/// rank, half-precision vectors on the wire, half-precision tables, pipelined id exchanges.
Result<PlanAdvice> advise(const BatchModel& model, std::span<const TablePlacement> placements,
                          const BatchTime& time);

}  // namespace perfmodel::sharding
