#include "priced_plans.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "sharding/memory_shortfall.hpp"
#include "sharding/torchrec_space.hpp"

namespace perfmodel::sharding {
namespace {

SearchOptions search_options(const LoadedStudy& loaded, std::size_t keep,
                             const SearchWatch& watch) {
  return {.time_budget_s = loaded.time_budget_s,
          .seed = loaded.seed,
          .keep = keep,
          .progress = [&watch](const SearchProgress& progress) {
            if (watch.progress) watch.progress(progress);
            return !watch.is_stopped || !watch.is_stopped();
          }};
}

std::shared_ptr<void> begin_search(const SearchWatch& watch) {
  return watch.begin_search ? watch.begin_search() : nullptr;
}

// Bytes of each rank that the dense part takes.
Result<std::int64_t> dense_bytes(const LoadedStudy& loaded) {
  if (!loaded.study.dense) return 0;
  return BatchModel::make(loaded.study, loaded.gpu, loaded.topology, loaded.options)
      .map([](const BatchModel& model) {
        return static_cast<std::int64_t>(4 * model.dense().parameters);
      });
}

Result<TableSpace> rating_space(const LoadedStudy& loaded) {
  const std::vector<ShardedTable>& tables = loaded.study.tables;
  const TorchrecTopology topology = loaded.torchrec_topology();
  const TorchrecSettings settings = loaded.torchrec_settings();
  return dense_bytes(loaded)
      .and_then([&](std::int64_t dense) {
        return usable_hbm(tables, topology, settings, loaded.free_share(), dense);
      })
      .and_then([&](std::int64_t usable) {
        return make_torchrec_space(tables, topology, settings,
                                   {.hbm_cap = usable, .least_columns = {}});
      });
}

Result<ShardReport> search_ratings(const LoadedStudy& loaded, std::size_t keep,
                                   const SearchWatch& watch) {
  PERFMODEL_TRY(space, rating_space(loaded));
  auto running = begin_search(watch);
  const auto found = search_plans(space->space, search_options(loaded, keep, watch));
  running.reset();
  if (!found) {
    const std::string shortfall = describe_shortfall(loaded.study.tables, space->space);
    if (shortfall.empty()) return Unexpected{found.error()};
    return decline(shortfall);
  }
  std::vector<NamedPlacements> plans;
  for (const FoundPlan& plan : found->plans) {
    plans.push_back({std::to_string(plans.size() + 1), placements_of(*space, plan)});
  }
  return price_plans(loaded, plans).map([&](ShardReport report) {
    report.search = {found->lower_bound, found->proved_best, found->stopped, found->moves,
                     found->seconds};
    return report;
  });
}

// Advised plans of one model.
Result<ShardReport> time_report(const LoadedStudy& loaded, const BatchModel& model,
                                std::vector<PricedPlan> plans) {
  PERFMODEL_TRY_TO(loaded.models->check());
  ShardReport report{
      .loaded = &loaded, .plans = std::move(plans), .memory_cap = model.memory_cap()};
  if (!model.dense().in_range) {
    report.warnings.push_back(
        "a kernel of the dense part lies outside of the sizes that its model was checked on");
  }
  for (PricedPlan& plan : report.plans) {
    PERFMODEL_TRY(advice, advise(model, plan.placements, *plan.time));
    plan.advice = std::move(*advice);
  }
  return report;
}

Result<ShardReport> report_ranked(const LoadedStudy& loaded, const BatchModel& model,
                                  RankedPlans ranked) {
  std::vector<PricedPlan> plans;
  for (RankedPlan& plan : ranked.plans) {
    plans.push_back({.name = std::to_string(plans.size() + 1),
                     .placements = std::move(plan.placements),
                     .time = std::move(plan.time),
                     .advice = {},
                     .rating = {}});
  }
  return time_report(loaded, model, std::move(plans)).map([&](ShardReport report) {
    const bool is_met = ranked.lower_bound_us >= report.plans.front().cost();
    report.search = {ranked.lower_bound_us, is_met, ranked.stopped, ranked.moves, ranked.seconds};
    return report;
  });
}

Result<ShardReport> search_times(const LoadedStudy& loaded, std::size_t keep,
                                 const SearchWatch& watch) {
  return BatchModel::make(loaded.study, loaded.gpu, loaded.topology, loaded.options)
      .and_then([&](const BatchModel& model) {
        auto running = begin_search(watch);
        auto ranked = rank_plans(model, search_options(loaded, keep, watch));
        running.reset();
        return std::move(ranked).and_then(
            [&](RankedPlans plans) { return report_ranked(loaded, model, std::move(plans)); });
      });
}

Result<ShardReport> price_ratings(const LoadedStudy& loaded,
                                  const std::vector<NamedPlacements>& plans) {
  const TorchrecTopology topology = loaded.torchrec_topology();
  ShardReport report{
      .loaded = &loaded, .plans = {}, .memory_cap = static_cast<double>(topology.hbm_cap)};
  for (const auto& [name, placements] : plans) {
    PERFMODEL_TRY(rating,
                  rate_plan(loaded.study.tables, placements, topology, loaded.torchrec_settings()));
    report.plans.push_back({name, placements, {}, {}, std::move(*rating)});
  }
  return report;
}

// The best time of a study; nothing if it does not fit.
Result<std::optional<double>> best_us(const BatchModel& any, const ShardingStudy& study,
                                      const SearchOptions& options) {
  return any.with(study).map([&](const BatchModel& model) -> std::optional<double> {
    const auto ranked = rank_plans(model, options);
    if (!ranked || !ranked->plans.front().time.ranks_over_memory.empty()) return std::nullopt;
    return ranked->plans.front().time.predicted_us;
  });
}

std::vector<std::int64_t> numbers_of_gpus(const LoadedStudy& loaded) {
  const std::int64_t most = loaded.topology.nic ? std::max<std::int64_t>(*loaded.study.world, 64)
                                                : loaded.topology.gpus_per_node;
  std::vector<std::int64_t> numbers;
  for (std::int64_t gpus = 1; gpus <= most; gpus *= 2) numbers.push_back(gpus);
  return numbers;
}

}  // namespace

double PricedPlan::most_memory() const {
  if (rating) return static_cast<double>(rating->largest_hbm());
  double most = 0;
  if (time) {
    for (const BatchRank& rank : time->ranks) most = std::max(most, rank.memory.total());
  }
  return most;
}

bool CompressionReport::hashed_wins(std::size_t row) const {
  const Row& times = rows[row];
  if (!times.hashed_us || !times.sharded_us) return times.hashed_us.has_value();
  return *times.hashed_us * iterations_multiplier < *times.sharded_us;
}

Result<ShardReport> search_for_plans(const LoadedStudy& loaded, std::size_t keep,
                                     const SearchWatch& watch) {
  return loaded.is_torchrec ? search_ratings(loaded, keep, watch)
                            : search_times(loaded, keep, watch);
}

Result<ShardReport> price_plans(const LoadedStudy& loaded,
                                const std::vector<NamedPlacements>& plans) {
  if (loaded.is_torchrec) return price_ratings(loaded, plans);
  return BatchModel::make(loaded.study, loaded.gpu, loaded.topology, loaded.options)
      .and_then([&](const BatchModel& model) -> Result<ShardReport> {
        std::vector<PricedPlan> priced;
        for (const auto& [name, placements] : plans) {
          PERFMODEL_TRY(time, model.time(placements));
          priced.push_back({name, placements, std::move(*time), {}, {}});
        }
        return time_report(loaded, model, std::move(priced));
      });
}

Result<CompressionReport> compare_compression(const LoadedStudy& loaded, const SearchWatch& watch) {
  CompressionReport report;
  report.iterations_multiplier = loaded.study.hashed->iterations_multiplier;
  report.array_elements = loaded.study.hashed->elements;
  ShardingStudy plain = loaded.study, hashed = loaded.study;
  plain.hashed.reset();
  bool chooses = true;  // whether tables may also be stored
  for (ShardedTable& table : plain.tables) {
    if (std::ranges::find(table.rules.kernels, ComputeKernel::kHashed) !=
        table.rules.kernels.end()) {
      report.table_elements += static_cast<double>(table.rows) * static_cast<double>(table.dim);
      std::erase(table.rules.kernels, ComputeKernel::kHashed);
      if (!table.rules.kernels.empty()) continue;
      chooses = false;
      table.rules.types = {};
    }
  }
  PERFMODEL_TRY(model, BatchModel::make(loaded.study, loaded.gpu, loaded.topology, loaded.options));
  const auto running = begin_search(watch);
  const SearchOptions options = search_options(loaded, 1, watch);
  for (const std::int64_t gpus : numbers_of_gpus(loaded)) {
    plain.world = hashed.world = gpus;
    plain.local_world = hashed.local_world = std::min(gpus, *loaded.study.local_world);
    PERFMODEL_TRY(without, best_us(*model, plain, options));
    PERFMODEL_TRY(with, best_us(*model, hashed, options));
    // The tables may also choose a plan that hashes nothing.
    if (chooses && *without) *with = *with ? std::min(**with, **without) : **without;
    report.rows.push_back({gpus, *without, *with});
    if (*without && !report.sharded_fits) report.sharded_fits = gpus;
    if (*with && !report.hashed_fits) report.hashed_fits = gpus;
    if (watch.is_stopped && watch.is_stopped()) break;
  }
  return report;
}

}  // namespace perfmodel::sharding
