#include "perfmodel/sharding/rank_plans.hpp"

#include <algorithm>
#include <chrono>

namespace perfmodel::sharding {
namespace {

TablePlacement placement_of(const PlanSpace& space, std::size_t table, const PlacedChoice& placed) {
  const PlacementOption& option =
      space.choices[space.choices_of_table[table]].options[placed.option];
  return {.type = option.type,
          .kernel = option.kernel,
          .ranks = {placed.ranks.begin(), placed.ranks.end()},
          .least_columns = option.least_columns};
}

bool is_known(const RankedPlans& all, const std::vector<TablePlacement>& placements) {
  return std::any_of(all.plans.begin(), all.plans.end(),
                     [&](const RankedPlan& plan) { return plan.placements == placements; });
}

}  // namespace

Result<RankedPlans> rank_plans(const BatchModel& model, const SearchOptions& options) {
  constexpr std::size_t kLeastCandidates = 8;
  constexpr double kAllReduceShares[] = {1, 0};  // exposed, hidden
  RankedPlans all;
  double least_bound = 0;
  for (const double share : kAllReduceShares) {
    const auto space = model.space(share);
    if (!space) return Unexpected{space.error()};
    SearchOptions search = options;
    search.keep = std::max(kLeastCandidates, options.keep);
    search.time_budget_s = options.time_budget_s / std::size(kAllReduceShares);
    const auto found = search_plans(*space, search);
    if (!found) return Unexpected{found.error()};
    all.stopped = all.stopped || found->stopped;
    all.moves += found->moves;
    all.seconds += found->seconds;
    all.proved_best = found->proved_best;
    least_bound = found->lower_bound;  // of the last, cheapest space
    for (const FoundPlan& plan : found->plans) {
      RankedPlan ranked;
      ranked.objective_us = plan.objective;
      for (std::size_t t = 0; t < plan.tables.size(); ++t) {
        ranked.placements.push_back(placement_of(*space, t, plan.tables[t]));
      }
      if (is_known(all, ranked.placements)) continue;
      auto time = model.time(ranked.placements);
      if (!time) return Unexpected{time.error()};
      ranked.time = std::move(*time);
      all.plans.push_back(std::move(ranked));
    }
  }
  std::stable_sort(all.plans.begin(), all.plans.end(), [](const auto& a, const auto& b) {
    return a.time.predicted_us < b.time.predicted_us;
  });
  const RankedPlan& best = all.plans.front();
  const double slack = std::max(0.0, best.objective_us - least_bound);
  all.lower_bound_us = std::max(0.0, best.time.predicted_us - slack * model.device_factor());
  if (all.plans.size() > std::max<std::size_t>(1, options.keep)) {
    all.plans.resize(std::max<std::size_t>(1, options.keep));
  }
  return all;
}

}  // namespace perfmodel::sharding
