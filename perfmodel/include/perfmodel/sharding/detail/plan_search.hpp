#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/plan_space.hpp"
#include "perfmodel/sharding/detail/shortfall.hpp"

namespace perfmodel::sharding {

/// One table's place: an option of its choices and a rank per shard (empty where every rank has
/// one).
struct PlacedChoice {
  std::uint32_t option = 0;  ///< into TableChoices::options
  std::vector<std::int32_t> ranks;
};

struct FoundPlan {
  std::vector<PlacedChoice> tables;
  double objective = 0;
};

struct SearchProgress {
  double best = 0, lower_bound = 0, seconds = 0;
  std::uint64_t moves = 0;  ///< tried
};

struct SearchOptions {
  /// Seconds that a core of an EPYC takes for what is tried: counted and not measured, so that
  /// every machine, however loaded, finds the same plans.
  double time_budget_s = 10;
  /// Moves tried; 0: chosen from the size of the problem, times `effort`, and fewer where rounds
  /// of them find nothing better.
  std::uint64_t move_budget = 0;
  double effort = 1;
  std::uint64_t seed = 1;
  std::size_t keep = 1;  ///< plans to hand back, each with other options for some tables
  /// Steps of the enumeration that small problems get; 0: none.
  std::uint64_t exact_nodes = 200'000;
  /// Called a few times a second; false ends the search with what it has.
  std::function<bool(const SearchProgress&)> progress = {};
};

struct SearchResult {
  std::vector<FoundPlan> plans;  ///< best first
  double lower_bound = 0;        ///< no plan that fits is better
  bool proved_best = false;      ///< by enumeration, or because the bound is met
  bool stopped = false;  ///< by the time budget or `progress`, before the move budget was used up
  std::uint64_t moves = 0;
  double seconds = 0;    ///< processor time
  double counted_s = 0;  ///< taken from the time budget
};

/// The best plans found. Seeds: for rising limits on the largest shard and prices of a byte, each
/// table's cheapest option, packed longest first; TorchRec's greedy sequence; one type for all.
/// Small problems are enumerated from there (branch and bound). If that is too much, plans are
/// improved by annealing: shards and blocks of them move, swap and change their option, most often
/// on the rank that limits a phase. Same space, options and seed: same plans, unless `progress`
/// stops it.
///
/// Errors (kImpossible): a space that contradicts itself; a table without options or that fits on
/// no rank (by its index); tables that do not fit: what is short (see find_shortfall()).
Result<SearchResult> search_plans(const PlanSpace& space, const SearchOptions& options);

/// Objective from scratch. Errors (kImpossible): ranks that the type does not allow, a rank twice,
/// a forbidden rank, memory that is not there.
Result<double> evaluate_plan(const PlanSpace& space, std::span<const PlacedChoice> plan);

}  // namespace perfmodel::sharding
