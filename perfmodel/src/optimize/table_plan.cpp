#include "table_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/sharding/rank_plans.hpp"
#include "sharding/tables_in_graph.hpp"
#include "sharding/torchrec_step.hpp"

namespace perfmodel::advice {
namespace {

using sharding::BatchModel;
using sharding::ShardingType;
using sharding::TablePlacement;

// The topology that the options name, or the usual one of the GPU.
Result<Topology> topology_of(const WhatIfTarget& target, const OptimizeOptions& options) {
  if (options.topology.empty()) return topology_for(target.gpu);
  return TopologyCatalog::builtin().find(options.topology);
}

// As `shard GRAPH` asks: tables and layers of the graph in an eager step of PyTorch.
Result<BatchModel> model_of(const ExecutionGraph& graph, const WhatIfTarget& target,
                            const OptimizeOptions& options, std::int64_t& batch) {
  PERFMODEL_TRY(found, sharding::tables_in_graph(graph));
  if (!found->batch) {
    return decline("expected lookups of one batch, found several");
  }
  batch = *found->batch;
  PERFMODEL_TRY(topology, topology_of(target, options));
  sharding::ShardingStudy study;
  study.tables = std::move(found->tables);
  study.dense = std::move(found->dense);
  study.world = options.world;
  study.local_world = std::min<std::int64_t>(options.world, topology->gpus_per_node);
  study.batch_per_rank = batch;
  sharding::BatchOptions batch_options{.models = target.options.models};
  PERFMODEL_TRY(possible, BatchModel::make(study, target.gpu, *topology, batch_options));
  PERFMODEL_TRY(step, sharding::torchrec_step(study, target.gpu, *topology, batch_options,
                                              *target.overheads, Launching::kEager));
  batch_options.step = std::move(*step);
  return BatchModel::make(study, target.gpu, *topology, batch_options);
}

// Every table whole on every rank, as DistributedDataParallel holds it.
std::optional<double> replicated_us(const BatchModel& model) {
  std::vector<TablePlacement> placements;
  for (const sharding::ShardedTable& table : model.study().tables) {
    const auto ways = model.ways(table);
    const auto whole = std::ranges::find(ways, ShardingType::kDataParallel, &TablePlacement::type);
    if (whole == ways.end()) return std::nullopt;
    placements.push_back(*whole);
  }
  const auto time = model.time(placements);
  if (!time || !time->ranks_over_memory.empty()) return std::nullopt;
  return time->predicted_us;
}

// "20 table_wise, 6 row_wise"
std::string plan_words(const std::vector<TablePlacement>& placements) {
  std::map<std::string_view, std::size_t> counts;
  for (const TablePlacement& placement : placements) ++counts[to_string(placement.type)];
  std::vector<std::string> words;
  for (const auto& [type, count] : counts) words.push_back(fmt::format("{} {}", count, type));
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::optional<TablePlanAdvice> table_plan(const ExecutionGraph& graph, const WhatIfTarget& target,
                                          const OptimizeOptions& options, std::string& why) {
  if (options.world <= 1) return std::nullopt;
  std::int64_t batch = 0;
  const auto model = model_of(graph, target, options, batch);
  if (!model) {
    why = model.error().message;
    return std::nullopt;
  }
  const auto plans = sharding::rank_plans(
      *model,
      {.time_budget_s = std::min(sharding::SearchOptions{}.time_budget_s, options.time_budget_s)});
  if (!plans || plans->plans.empty()) {
    why = plans ? "no plan was found" : plans.error().message;
    return std::nullopt;
  }
  const sharding::RankedPlan& best = plans->plans.front();
  return TablePlanAdvice{
      .plan_us = best.time.predicted_us,
      .replicated_us = replicated_us(*model),
      .plan = plan_words(best.placements),
      .command = fmt::format("perfpredict shard {}{} --world {} --batch-per-gpu {}",
                             options.graph_file, options.machine_flags, options.world, batch),
      .code =
          "torchrec DistributedModelParallel(model, plan=plan) with the tables in an "
          "EmbeddingBagCollection"};
}

}  // namespace perfmodel::advice
