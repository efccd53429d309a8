#include "shard_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "interrupt_guard.hpp"
#include "sharding/memory_shortfall.hpp"
#include "sharding/torchrec_space.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

void clear_progress() {
  if (progress_shown()) fmt::print(stderr, "\r{:79}\r", "");
}

void warn_of_range(const BatchModel& model, ShardReport& report) {
  if (model.dense().in_range) return;
  report.warnings.push_back(
      "a kernel of the dense part lies outside of the sizes that its model was checked on");
}

Result<ShardReport> search_ratings(const LoadedStudy& loaded, const ShardArguments& arguments,
                                   std::size_t keep) {
  const TorchrecTopology topology = loaded.torchrec_topology();
  const TorchrecSettings settings = loaded.torchrec_settings();
  const std::vector<ShardedTable>& tables = loaded.study.tables;
  std::int64_t dense_bytes = 0;
  if (loaded.study.dense) {
    const auto model = batch_model(loaded, arguments);
    if (!model) return Unexpected{model.error()};
    dense_bytes = static_cast<std::int64_t>(4 * model->dense().parameters);
  }
  const auto usable = usable_hbm(tables, topology, settings,
                                 loaded.study.free_share.value_or(kDefaultFreeShare), dense_bytes);
  if (!usable) return Unexpected{usable.error()};
  const auto space =
      make_torchrec_space(tables, topology, settings, {.hbm_cap = *usable, .least_columns = {}});
  if (!space) return Unexpected{space.error()};
  const InterruptGuard guard;
  const auto found = search_plans(space->space, search_options(arguments, keep));
  clear_progress();
  if (!found) {
    const std::string shortfall = describe_shortfall(tables, space->space);
    if (shortfall.empty()) return Unexpected{found.error()};
    return fail(ErrorCode::kImpossible, shortfall);
  }
  std::vector<NamedPlacements> plans;
  for (const FoundPlan& plan : found->plans) {
    plans.push_back({std::to_string(plans.size() + 1), placements_of(*space, plan)});
  }
  auto report = price_plans(loaded, arguments, plans);
  if (!report) return report;
  report->search = {found->lower_bound, found->proved_best, found->stopped, found->moves,
                    found->seconds};
  return report;
}

Result<ShardReport> search_times(const LoadedStudy& loaded, const ShardArguments& arguments,
                                 std::size_t keep) {
  const auto model = batch_model(loaded, arguments);
  if (!model) return Unexpected{model.error()};
  const InterruptGuard guard;
  auto ranked = rank_plans(*model, search_options(arguments, keep));
  clear_progress();
  if (!ranked) return Unexpected{ranked.error()};
  if (auto readable = loaded.models.check(); !readable) return Unexpected{readable.error()};
  ShardReport report;
  report.loaded = &loaded;
  report.memory_cap = model->memory_cap();
  warn_of_range(*model, report);
  for (RankedPlan& plan : ranked->plans) {
    auto advice = advise(*model, plan.placements, plan.time);
    if (!advice) return Unexpected{advice.error()};
    report.plans.push_back({.name = std::to_string(report.plans.size() + 1),
                            .placements = std::move(plan.placements),
                            .time = std::move(plan.time),
                            .advice = std::move(*advice),
                            .rating = {}});
  }
  const bool met = ranked->lower_bound_us >= report.plans.front().cost();
  report.search = {ranked->lower_bound_us, met, ranked->stopped, ranked->moves, ranked->seconds};
  return report;
}

// The best time of a study; nothing where it does not fit.
Result<std::optional<double>> best_us(const BatchModel& any, const ShardingStudy& study,
                                      const ShardArguments& arguments) {
  const auto model = any.with(study);
  if (!model) return Unexpected{model.error()};
  const auto ranked = rank_plans(*model, search_options(arguments, 1));
  if (!ranked) return std::optional<double>{};
  const RankedPlan& best = ranked->plans.front();
  if (!best.time.ranks_over_memory.empty()) return std::optional<double>{};
  return std::optional<double>{best.time.predicted_us};
}

std::vector<std::int64_t> numbers_of_gpus(const LoadedStudy& loaded) {
  const std::int64_t most = loaded.topology.nic ? std::max<std::int64_t>(*loaded.study.world, 64)
                                                : loaded.topology.gpus_per_node;
  std::vector<std::int64_t> numbers;
  for (std::int64_t gpus = 1; gpus <= most; gpus *= 2) numbers.push_back(gpus);
  return numbers;
}

}  // namespace

Result<ShardReport> search_for_plans(const LoadedStudy& loaded, const ShardArguments& arguments,
                                     std::size_t keep) {
  return loaded.is_torchrec ? search_ratings(loaded, arguments, keep)
                            : search_times(loaded, arguments, keep);
}

Result<ShardReport> price_plans(const LoadedStudy& loaded, const ShardArguments& arguments,
                                const std::vector<NamedPlacements>& plans) {
  ShardReport report;
  report.loaded = &loaded;
  if (loaded.is_torchrec) {
    const TorchrecTopology topology = loaded.torchrec_topology();
    report.memory_cap = static_cast<double>(topology.hbm_cap);
    for (const NamedPlacements& plan : plans) {
      auto rating =
          rate_plan(loaded.study.tables, plan.placements, topology, loaded.torchrec_settings());
      if (!rating) return Unexpected{rating.error()};
      report.plans.push_back({plan.name, plan.placements, {}, {}, std::move(*rating)});
    }
    return report;
  }
  const auto model = batch_model(loaded, arguments);
  if (!model) return Unexpected{model.error()};
  report.memory_cap = model->memory_cap();
  warn_of_range(*model, report);
  for (const NamedPlacements& plan : plans) {
    auto time = model->time(plan.placements);
    if (!time) return Unexpected{time.error()};
    auto advice = advise(*model, plan.placements, *time);
    if (!advice) return Unexpected{advice.error()};
    report.plans.push_back({plan.name, plan.placements, std::move(*time), std::move(*advice), {}});
  }
  if (auto readable = loaded.models.check(); !readable) return Unexpected{readable.error()};
  return report;
}

Result<CompressionReport> compare_compression(const LoadedStudy& loaded,
                                              const ShardArguments& arguments) {
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
      chooses &= table.rules.kernels.size() > 1;
      table.rules = {.types = {},
                     .kernels = {},
                     .keep_with = table.rules.keep_with,
                     .forbidden_ranks = table.rules.forbidden_ranks};
    }
  }
  const auto model = batch_model(loaded, arguments);
  if (!model) return Unexpected{model.error()};
  const InterruptGuard guard;
  for (const std::int64_t gpus : numbers_of_gpus(loaded)) {
    plain.world = hashed.world = gpus;
    plain.local_world = hashed.local_world = std::min(gpus, *loaded.study.local_world);
    const auto without = best_us(*model, plain, arguments);
    if (!without) return Unexpected{without.error()};
    auto with = best_us(*model, hashed, arguments);
    if (!with) return Unexpected{with.error()};
    // A plan that hashes nothing is one of those that the tables may choose.
    if (chooses && *without) *with = *with ? std::min(**with, **without) : **without;
    report.rows.push_back({gpus, *without, *with});
    if (*without && !report.sharded_fits) report.sharded_fits = gpus;
    if (*with && !report.hashed_fits) report.hashed_fits = gpus;
    if (InterruptGuard::interrupted()) break;
  }
  clear_progress();
  return report;
}

}  // namespace perfmodel::cli
