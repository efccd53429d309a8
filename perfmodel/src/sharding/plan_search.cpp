#include "perfmodel/sharding/detail/plan_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/stop_point.hpp"
#include "base/thread_seconds.hpp"
#include "plan_search_exact.hpp"
#include "plan_search_local.hpp"
#include "plan_search_seeds.hpp"
#include "plan_search_space.hpp"

namespace perfmodel::sharding {
namespace {

using search::FlatSpace;
using search::kInfinite;
using search::Layout;

constexpr double kRounding = 1e-9;  // below it the bound counts as met

// Plans that differ in the options of some table, best first.
class PlanPool {
 public:
  explicit PlanPool(std::size_t keep) : keep_(keep) {}

  // A plan takes the storage of the one that it replaces.
  void add(const Layout& layout, double objective) {
    auto changed = std::ranges::find(plans_, layout.mix, &Layout::mix);
    if (changed == plans_.end() && plans_.size() < keep_) {
      changed = plans_.insert(changed, Layout{.objective = kInfinite});
    } else if (changed == plans_.end()) {
      --changed;
    }
    if (changed->objective <= objective) return;
    *changed = layout;
    changed->objective = objective;
    const auto place = std::find_if(plans_.begin(), changed,
                                    [&](const Layout& plan) { return plan.objective > objective; });
    std::rotate(place, changed, changed + 1);
    worth_ = plans_.size() < keep_ ? kInfinite : plans_.back().objective;
  }
  void add(Layout layout) {
    layout.mix = search::mix_of(layout);
    add(layout, layout.objective);
  }

  bool empty() const { return plans_.empty(); }
  const Layout& best() const { return plans_.front(); }
  double best_objective() const { return plans_.empty() ? kInfinite : best().objective; }
  const double& worth() const { return worth_; }  // a new plan has to beat it
  const std::vector<Layout>& layouts() const { return plans_; }

 private:
  const std::size_t keep_;
  std::vector<Layout> plans_;
  double worth_ = kInfinite;
};

class Search {
 public:
  Search(const PlanSpace& space, const FlatSpace& flat, const SearchOptions& options)
      : space_(space),
        flat_(flat),
        options_(options),
        pool_(std::max<std::size_t>(1, options.keep)),
        random_(options.seed),
        local_(search::make_local_search(flat)),
        budget_(options.move_budget > 0
                    ? options.move_budget
                    : static_cast<std::uint64_t>(options.effort *
                                                 static_cast<double>(default_moves(flat)))) {
    hooks_.found = [this](const Layout& plan, double objective) { pool_.add(plan, objective); };
    hooks_.go_on = [this](std::uint64_t moves) { return go_on(moves); };
  }

  Result<SearchResult> run() {
    bound_ = search::lower_bound(flat_);
    if (bound_ == kInfinite) return lacks_memory();
    const double share = std::min(1.0, options_.effort / kEffortOfAllSeeds);
    const std::vector<Layout> seeds = search::make_seeds(flat_, bound_, kSeeds, share, [this] {
      ++seeds_;
      return go_on(0);
    });
    for (const Layout& seed : seeds) pool_.add(seed);
    if (options_.exact_nodes > 0 && !is_met() && !stopped_ && search::is_small(flat_)) enumerate();
    if (pool_.empty() && !enumerated_) repair();
    if (!pool_.empty()) improve(seeds);
    if (pool_.empty()) return lacks_memory();
    return result();
  }

 private:
  static constexpr std::size_t kSeeds = 6;
  static constexpr double kEffortOfAllSeeds = 0.15;
  static constexpr std::size_t kRounds = 6;

  static std::uint64_t default_moves(const FlatSpace& flat) {
    const auto tables = static_cast<double>(flat.choice_of.size());
    const double moves = 2.5e6 / flat.world + std::min(25 * tables * tables, 3500 * tables);
    return static_cast<std::uint64_t>(2 * moves / static_cast<double>(1 + flat.phases));
  }

  double seconds() const { return thread_seconds() - start_s_; }

  // Seconds that a core of an EPYC takes for all that was tried: counted, so that a loaded or a
  // slower machine finds the same plan.
  double counted_s(std::uint64_t moves_of_round) const {
    constexpr double kMove = 0.22e-6, kPhase = 0.05e-6, kRank = 4e-11, kShare = 4e-9, kNodes = 1e-3;
    const auto phases = static_cast<double>(flat_.phases);
    const double shares = static_cast<double>(flat_.choice_of.size()) * flat_.world;
    const double move_s = kMove + phases * (kPhase + kRank * flat_.world);
    return static_cast<double>(moves_ + moves_of_round) * move_s +
           static_cast<double>(seeds_) * kShare * shares + static_cast<double>(nodes_) * kNodes;
  }

  bool go_on(std::uint64_t moves_of_round) {
    constexpr double kBetweenReports = 0.25;
    stop_point();
    if (stopped_) return false;
    if (is_met()) return false;
    const double now = seconds();
    if (counted_s(moves_of_round) > options_.time_budget_s) stopped_ = true;
    if (options_.progress && now - reported_ >= kBetweenReports) {
      reported_ = now;
      if (!options_.progress({.best = pool_.best_objective(),
                              .lower_bound = bound_,
                              .seconds = now,
                              .moves = moves_ + moves_of_round})) {
        stopped_ = true;
      }
    }
    return !stopped_;
  }

  // Then nothing better is left to be found, unless others are asked for too.
  bool is_met() const {
    return options_.keep <= 1 && pool_.best_objective() <= bound_ * (1 + kRounding);
  }

  Unexpected lacks_memory() const {
    const Shortfall lack = find_shortfall(space_);
    const bool in_all =
        lack.least_hbm_bytes > lack.hbm_bytes || lack.least_ddr_bytes > lack.ddr_bytes;
    return decline(
        fmt::format("expected tables that fit, found {}: they take at least {} bytes of {} of HBM "
                    "and {} of {} of host memory",
                    in_all ? "more than all ranks hold" : "no plan in which they do",
                    lack.least_hbm_bytes, lack.hbm_bytes, lack.least_ddr_bytes, lack.ddr_bytes));
  }

  // From a plan that takes too much memory to one that does not.
  void repair() {
    constexpr int kAttempts = 4;
    const Layout smallest = search::smallest_layout(flat_);
    for (int i = 0; i < kAttempts && pool_.empty() && !stopped_; ++i) {
      moves_ +=
          local_->run(smallest, {.hot = 0.1, .cold = 1e-4, .moves = budget_ / 2, .repair = true},
                      random_, pool_.worth(), hooks_);
    }
  }

  // The best seeds from hot to cold, then the best plan again and again. The more tables, the less
  // of the cost is a move's, and the cooler it has to be.
  void improve(const std::vector<Layout>& seeds) {
    constexpr double kFewTables = 30, kCooling = 1.2, kCold = 2e-5, kWorthwhile = 5e-4;
    constexpr double kNearBound = 2e-3;  // nearer, no round is worth its moves
    constexpr std::size_t kMostIdleRounds = 2;
    constexpr std::array<double, kRounds> kHot = {0.005, 0.01, 0.05, 0.005, 0.1, 0.005};
    const auto tables = static_cast<double>(flat_.choice_of.size());
    const double scale = std::pow(kFewTables / std::max(1.0, tables), kCooling);
    std::size_t idle_rounds = 0;
    for (std::size_t round = 0; round < kRounds && !is_met() && !stopped_; ++round) {
      const double before = pool_.best_objective();
      const bool fresh = round < std::min<std::size_t>(2, seeds.size());
      const Layout start = fresh ? seeds[round] : pool_.best();
      const search::Annealing annealing{
          .hot = kHot[round] * scale,
          .cold = kCold * scale,
          .moves = budget_ / kRounds + (round == 0 ? budget_ % kRounds : 0)};
      moves_ += local_->run(start, annealing, random_, pool_.worth(), hooks_);
      const bool helped = pool_.best_objective() < before * (1 - kWorthwhile);
      idle_rounds = helped ? 0 : idle_rounds + 1;
      if (options_.move_budget > 0) continue;
      if (idle_rounds == kMostIdleRounds || pool_.best_objective() <= bound_ * (1 + kNearBound)) {
        break;
      }
    }
  }

  void enumerate() {
    Layout start = pool_.empty() ? search::smallest_layout(flat_) : pool_.best();
    start.objective = pool_.best_objective();
    const auto exact = search::enumerate(flat_, start, options_.exact_nodes, [this] {
      ++nodes_;
      return go_on(0);
    });
    if (exact.improved) pool_.add(exact.best);
    enumerated_ = exact.complete;
    if (enumerated_) bound_ = std::max(bound_, pool_.best_objective());
  }

  SearchResult result() const {
    SearchResult result;
    for (const Layout& layout : pool_.layouts()) result.plans.push_back(plan_of(layout));
    std::stable_sort(
        result.plans.begin(), result.plans.end(),
        [](const FoundPlan& a, const FoundPlan& b) { return a.objective < b.objective; });
    result.lower_bound = std::min(bound_, result.plans.front().objective);
    result.proved_best = result.plans.front().objective <= bound_ * (1 + kRounding);
    result.stopped = stopped_;
    result.moves = moves_;
    result.seconds = seconds();
    result.counted_s = counted_s(0);
    return result;
  }

  FoundPlan plan_of(const Layout& layout) const {
    FoundPlan plan;
    for (std::size_t t = 0; t < layout.option.size(); ++t) {
      const search::Option& option = flat_.options[layout.option[t]];
      PlacedChoice placed{.option = option.index, .ranks = {}};
      for (std::int32_t k = 0; k < option.pieces; ++k) {
        const std::int32_t place =
            layout.where[flat_.first_place[t] + static_cast<std::uint32_t>(k)];
        if (option.spread != search::Spread::kHostBlocks) {
          placed.ranks.push_back(place);
          continue;
        }
        for (std::int32_t i = 0; i < flat_.local_world; ++i) {
          placed.ranks.push_back(place * flat_.local_world + i);
        }
      }
      plan.tables.push_back(std::move(placed));
    }
    const auto objective = search::objective_of(space_, plan.tables);
    PERFMODEL_CHECK(objective.has_value());
    plan.objective = *objective;
    return plan;
  }

  const PlanSpace& space_;
  const FlatSpace& flat_;
  const SearchOptions& options_;
  PlanPool pool_;
  search::Random random_;
  std::unique_ptr<search::LocalSearch> local_;
  const std::uint64_t budget_;
  search::SearchHooks hooks_;
  const double start_s_ = thread_seconds();
  double bound_ = 0, reported_ = 0;
  std::uint64_t moves_ = 0, seeds_ = 0, nodes_ = 0;  // nodes in thousands
  bool stopped_ = false, enumerated_ = false;
};

}  // namespace

Result<SearchResult> search_plans(const PlanSpace& space, const SearchOptions& options) {
  if (!(options.time_budget_s > 0)) {
    return decline(
        fmt::format("expected a time budget above 0 s, found {}", options.time_budget_s));
  }
  PERFMODEL_TRY(flat, search::flatten(space));
  return Search(space, *flat, options).run();
}

}  // namespace perfmodel::sharding
