#include "perfmodel/sharding/rank_plans.hpp"

#include <algorithm>
#include <array>

#include "memory_shortfall.hpp"

namespace perfmodel::sharding {
namespace {

bool is_known(const RankedPlans& all, const std::vector<TablePlacement>& placements) {
  return std::any_of(all.plans.begin(), all.plans.end(),
                     [&](const RankedPlan& plan) { return plan.placements == placements; });
}

// The whole space, then parts of it that use one kind of exchange each; all-reduces exposed, then
// hidden. Spaces that are the same as one before are left out.
std::vector<BatchModel::SpaceOptions> spaces_of(const BatchModel& model) {
  const bool hosts = model.world() > model.local_world();
  std::vector<BatchModel::SpaceOptions> spaces;
  for (const double share : {0.0, 1.0}) {
    using Options = BatchModel::SpaceOptions;
    spaces.push_back(Options{.all_reduce_share = share});
    if (model.world() == 1) break;
    spaces.push_back(Options{share, true, false, false});
    spaces.push_back(Options{share, false, true, false});
    if (hosts) {
      spaces.push_back(Options{share, false, false, true});
      spaces.push_back(Options{share, true, false, true});
    }
  }
  return spaces;
}

Result<void> add_plans(const BatchModel& model, const TableSpace& space, const SearchResult& found,
                       RankedPlans& all) {
  for (const FoundPlan& plan : found.plans) {
    RankedPlan ranked;
    ranked.objective_us = plan.objective;
    ranked.placements = placements_of(space, plan);
    if (is_known(all, ranked.placements)) continue;
    auto time = model.time(ranked.placements);
    if (!time) return Unexpected{time.error()};
    ranked.time = std::move(*time);
    all.plans.push_back(std::move(ranked));
  }
  return {};
}

std::array<std::size_t, 16> tables_by_type(const RankedPlan& plan) {
  std::array<std::size_t, 16> count{};
  for (const TablePlacement& placement : plan.placements) {
    ++count[static_cast<std::size_t>(placement.type)];
  }
  return count;
}

// The best, and of the others those that shard other numbers of tables in some way: plans that
// differ in places alone say nothing new.
void keep_different(std::vector<RankedPlan>& plans, std::size_t most) {
  std::vector<RankedPlan> kept;
  for (RankedPlan& plan : plans) {
    const auto types = tables_by_type(plan);
    const bool is_new = std::none_of(kept.begin(), kept.end(), [&](const RankedPlan& other) {
      return tables_by_type(other) == types;
    });
    if (is_new) kept.push_back(std::move(plan));
    if (kept.size() == most) break;
  }
  plans = std::move(kept);
}

// The search knows no names: says what is short where that is the reason.
Unexpected explained(const Error& error, const BatchModel& model, const PlanSpace& space) {
  const std::string shortfall = describe_shortfall(model.study().tables, space);
  if (shortfall.empty()) return Unexpected{error};
  return fail(ErrorCode::kImpossible, shortfall);
}

}  // namespace

Result<RankedPlans> rank_plans(const BatchModel& model, const SearchOptions& options) {
  constexpr std::size_t kLeastCandidates = 8;
  RankedPlans all;
  const auto spaces = spaces_of(model);
  double bound = 0, left_s = options.time_budget_s;
  for (std::size_t i = 0; i < spaces.size(); ++i) {
    const auto space = model.space(spaces[i]);
    if (!space) return Unexpected{space.error()};
    SearchOptions search = options;
    search.keep = std::max(kLeastCandidates, options.keep);
    search.time_budget_s = left_s / static_cast<double>(spaces.size() - i);
    const auto found = search_plans(space->space, search);
    if (!found) {
      if (i == 0) return explained(found.error(), model, space->space);
      continue;  // a part of the space that nothing fits into
    }
    if (i == 0) {
      bound = found->lower_bound;
      all.proved_best = found->proved_best;
    }
    left_s = std::max(0.0, left_s - found->seconds);
    all.stopped = all.stopped || found->stopped;
    all.moves += found->moves;
    all.seconds += found->seconds;
    if (auto good = add_plans(model, *space, *found, all); !good) return Unexpected{good.error()};
  }
  std::stable_sort(all.plans.begin(), all.plans.end(), [](const auto& a, const auto& b) {
    return a.time.predicted_us < b.time.predicted_us;
  });
  const RankedPlan& best = all.plans.front();
  const double slack = std::max(0.0, best.objective_us - bound);
  all.lower_bound_us = std::max(0.0, best.time.predicted_us - slack * model.device_factor());
  keep_different(all.plans, std::max<std::size_t>(1, options.keep));
  return all;
}

}  // namespace perfmodel::sharding
