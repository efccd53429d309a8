#include "perfmodel/sharding/rank_plans.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "base/thread_seconds.hpp"
#include "memory_shortfall.hpp"

namespace perfmodel::sharding {
namespace {

// The search knows no names: describes the shortfall, if that is the reason.
Unexpected explained(const Error& error, const BatchModel& model, const PlanSpace& space) {
  const std::string shortfall = describe_shortfall(model.study().tables, space);
  if (shortfall.empty()) return Unexpected{error};
  return decline(shortfall);
}

using SpaceOptions = BatchModel::SpaceOptions;

// Whether all tables may be stored whole, though some may be hashed.
bool may_leave_the_array(const ShardingStudy& study) {
  if (!study.hashed) return false;
  return std::all_of(study.tables.begin(), study.tables.end(), [](const ShardedTable& table) {
    const auto& kernels = table.rules.kernels;
    return std::any_of(kernels.begin(), kernels.end(),
                       [](ComputeKernel kernel) { return kernel != ComputeKernel::kHashed; }) ||
           kernels.empty();
  });
}

// The whole space, then parts of it that use one kind of exchange each; all-reduces exposed, then
// hidden. Spaces that are the same as one before are left out.
std::vector<SpaceOptions> spaces_of(const BatchModel& model) {
  const bool hosts = model.world() > model.local_world();
  std::vector<SpaceOptions> spaces;
  for (const double share : {0.0, 1.0}) {
    spaces.push_back({.all_reduce_share = share});
    if (model.world() == 1) break;
    spaces.push_back({.all_reduce_share = share, .sums = false, .host_sums = false});
    spaces.push_back({.all_reduce_share = share, .vectors = false, .host_sums = false});
    if (hosts) {
      spaces.push_back({.all_reduce_share = share, .vectors = false, .sums = false});
      spaces.push_back({.all_reduce_share = share, .sums = false});
    }
  }
  if (model.has_eager_host()) {
    // The needs of the host are not a load of any rank: plans with one kind of exchange need least.
    std::vector<SpaceOptions> alone;
    for (SpaceOptions part : spaces) {
      part.copies = false;
      if (part.all_reduce_share == 0) alone.push_back(part);
    }
    spaces.insert(spaces.end(), alone.begin(), alone.end());
  }
  if (may_leave_the_array(model.study())) {
    // An array that every GPU has whole pays for many tables or for none.
    std::vector<SpaceOptions> without = spaces;
    for (SpaceOptions& part : without) part.hashed = false;
    spaces.insert(spaces.end(), without.begin(), without.end());
  }
  return spaces;
}

double fullest_bytes(const BatchTime& time) {
  double most = 0;
  for (const BatchRank& rank : time.ranks) most = std::max(most, rank.memory.total());
  return most;
}

// Faster, or as fast with more memory left on the fullest rank.
bool is_better(const RankedPlan& a, const RankedPlan& b) {
  const bool a_fits = a.time.ranks_over_memory.empty(), b_fits = b.time.ranks_over_memory.empty();
  if (a_fits != b_fits) return a_fits;
  if (a.time.predicted_us != b.time.predicted_us) {
    return a.time.predicted_us < b.time.predicted_us;
  }
  return fullest_bytes(a.time) < fullest_bytes(b.time);
}

/// The plans found so far, each priced by BatchModel::time().
class Ranking {
 public:
  Ranking(const BatchModel& model, const SearchOptions& options)
      : model_(model), options_(options), left_s_(options.time_budget_s) {}

  // Looks into a space for a share of the time that is left. The best time found there [us];
  // nothing: nothing fits into it.
  Result<std::optional<double>> look(const SpaceOptions& part, double effort, double time_share) {
    PERFMODEL_TRY(space, model_.space(part));
    SearchOptions search = options_;
    search.keep = std::max(candidates(), options_.keep);
    search.effort = effort;
    search.time_budget_s = std::max(1e-3, left_s_ * time_share);
    const auto found = search_plans(space->space, search);
    if (!found) {
      if (!is_whole(part)) return std::optional<double>{};
      return explained(found.error(), model_, space->space);
    }
    left_s_ -= found->counted_s;
    all.stopped = all.stopped || found->stopped;
    all.moves += found->moves;
    all.seconds += found->seconds;
    std::optional<double> best;
    for (const FoundPlan& plan : found->plans) {
      PERFMODEL_TRY(us, add(placements_of(*space, plan), plan.objective));
      if (!best || *us < *best) best = *us;
    }
    return best;
  }

  // The best plans, changed table by table.
  Result<void> improve() {
    sort();
    const std::vector<RankedPlan> best(
        all.plans.begin(), all.plans.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                   is_large() ? 1 : 3, all.plans.size())));
    const auto seconds = [start = thread_seconds()] { return thread_seconds() - start; };
    bool asked_to_stop = false;
    // Counted like the moves of a search: some tries between two calls.
    constexpr double kCallPerRank = 4e-6, kCallPerTable = 0.2e-6;
    const double call_s = kCallPerRank * static_cast<double>(model_.world()) +
                          kCallPerTable * static_cast<double>(model_.study().tables.size());
    const auto go_on = [&] {
      asked_to_stop = asked_to_stop ||
                      (options_.progress && !options_.progress({.best = best.front().objective_us,
                                                                .seconds = all.seconds + seconds(),
                                                                .moves = all.moves}));
      left_s_ -= call_s;
      return !asked_to_stop && left_s_ > 0;
    };
    for (const RankedPlan& plan : best) {
      PERFMODEL_TRY(better,
                    model_.improved(plan.placements, {.seed = options_.seed, .go_on = go_on}));
      PERFMODEL_TRY_TO(add(*better, plan.objective_us));
    }
    all.seconds += seconds();
    all.stopped = all.stopped || asked_to_stop || left_s_ <= 0;
    sort();
    return {};
  }

  // Scheduling a plan in full takes as long as it has shards.
  bool is_large() const {
    constexpr std::int64_t kManyShards = 50'000;
    return std::ssize(model_.study().tables) * model_.world() > kManyShards;
  }

  const BatchTime& best_time() {
    sort();
    return all.plans.front().time;
  }

  RankedPlans all;

 private:
  std::size_t candidates() const { return is_large() ? 2 : 8; }

  static bool is_whole(const SpaceOptions& part) {
    return part.vectors && part.sums && part.host_sums && part.copies && part.hashed &&
           !part.settings;
  }

  Result<double> add(std::vector<TablePlacement> placements, double objective_us) {
    for (const RankedPlan& known : all.plans) {
      if (known.placements == placements) return known.time.predicted_us;
    }
    PERFMODEL_TRY(time, model_.time(placements));
    const double us = time->predicted_us;
    all.plans.push_back({std::move(placements), std::move(*time), objective_us});
    return us;
  }

  void sort() { std::stable_sort(all.plans.begin(), all.plans.end(), is_better); }

  const BatchModel& model_;
  const SearchOptions& options_;
  double left_s_;
};

std::array<std::size_t, 16> tables_by_type(const RankedPlan& plan) {
  std::array<std::size_t, 16> count{};
  for (const TablePlacement& placement : plan.placements) {
    ++count[static_cast<std::size_t>(placement.type)];
  }
  return count;
}

// Keeps the best, and others that shard other numbers of tables in some way: plans that only differ
// in places say nothing new.
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

}  // namespace

// First a glance into every part of the space, then a thorough search of the parts with the fastest
// plans, then changes of the best plans as time() judges them.
Result<RankedPlans> rank_plans(const BatchModel& model, const SearchOptions& options) {
  constexpr double kGlance = 0.15, kGlances = 0.4, kGlancesIfLarge = 0.6;
  Ranking ranking(model, options);
  const std::vector<SpaceOptions> spaces = spaces_of(model);
  const auto spaces_count = static_cast<double>(spaces.size());
  const double glance =
      ranking.is_large() ? std::min(kGlance, kGlancesIfLarge / spaces_count) : kGlance;
  std::vector<std::pair<double, SpaceOptions>> looked;
  const auto look = [&](const SpaceOptions& part, double effort, double share) -> Result<double> {
    PERFMODEL_TRY(us, ranking.look(part, effort, share));
    if (*us) looked.emplace_back(**us, part);
    return us->value_or(0);
  };
  for (const SpaceOptions& space : spaces) {
    PERFMODEL_TRY(us, look(space, glance, kGlances / spaces_count));
    if (!model.prefetches()) continue;
    // Prefetches overlap with a batch, whose time is known only now.
    SpaceOptions hidden = space;
    hidden.beside_prefetch_us = *us / model.device_factor();
    PERFMODEL_TRY(beside, look(hidden, glance, kGlances / spaces_count));
  }
  const auto sort = [&] {
    std::stable_sort(looked.begin(), looked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  };
  sort();
  if (model.study().searched.any() && !looked.empty()) {
    // Settings that are worthwhile given the exchanges of the best plan so far, in the best spaces
    // so far.
    PERFMODEL_TRY(chosen, model.cheapest_settings(ranking.best_time()));
    const auto settings = std::make_shared<const BatchModel::SettingsByWay>(std::move(*chosen));
    constexpr std::size_t kSpaces = 4;
    const std::size_t spaces_again =
        settings->empty() ? 0 : std::min(ranking.is_large() ? 2 : kSpaces, looked.size());
    for (std::size_t i = 0; i < spaces_again; ++i) {
      SpaceOptions part = looked[i].second;
      part.settings = settings;
      PERFMODEL_TRY_TO(look(part, glance, kGlances / 4));
    }
    sort();
  }
  const std::vector<std::pair<double, SpaceOptions>> best(
      looked.begin(), looked.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                           ranking.is_large() ? 1 : 2, looked.size())));
  for (const auto& [us, part] : best) PERFMODEL_TRY_TO(look(part, 1, 0.4));
  PERFMODEL_TRY_TO(ranking.improve());
  RankedPlans all = std::move(ranking.all);
  PERFMODEL_TRY(bound, model.lower_bound_us(all.plans.front().placements));
  const double best_us = all.plans.front().time.predicted_us;
  all.lower_bound_us = std::min(*bound, best_us);
  keep_different(all.plans, std::max<std::size_t>(1, options.keep));
  return all;
}

}  // namespace perfmodel::sharding
