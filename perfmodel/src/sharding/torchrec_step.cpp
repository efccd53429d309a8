#include "torchrec_step.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <span>
#include <tuple>

#include "perfmodel/predictors/detail/collective_model.hpp"
#include "predict/predict_with.hpp"
#include "sharded_graph.hpp"
#include "used_topology.hpp"

namespace perfmodel::sharding {
namespace {

using Kind = StepNeeds::Kind;

constexpr ShardingType type_of(Kind kind) {
  switch (kind) {
    case StepNeeds::kSums: return ShardingType::kRowWise;
    case StepNeeds::kHostSums: return ShardingType::kTableRowWise;
    case StepNeeds::kCopies: return ShardingType::kDataParallel;
    default: return ShardingType::kTableWise;
  }
}

constexpr BatchPart kLayerParts[] = {
    BatchPart::kBottomForward, BatchPart::kInteractionForward,  BatchPart::kTopForward,
    BatchPart::kTopBackward,   BatchPart::kInteractionBackward, BatchPart::kBottomBackward};

bool has_graph(const ShardingStudy& study) {
  if (!study.dense || study.dense->forward_us || study.dense->bottom_mlp.empty() ||
      study.dense->interaction != DensePart::Interaction::kDot) {
    return false;
  }
  return std::ranges::all_of(study.tables, [&](const ShardedTable& table) {
    return table.dim == study.dense->bottom_mlp.back();
  });
}

std::int64_t mean_dim(const ShardingStudy& study) {
  double sum = 0;
  for (const ShardedTable& table : study.tables) sum += static_cast<double>(table.dim);
  constexpr double kUnit = 4;  // FBGEMM's
  const double units = std::round(sum / static_cast<double>(study.tables.size()) / kUnit);
  return static_cast<std::int64_t>(kUnit * std::max(1.0, units));
}

double pooling_of(const ShardedTable& table) {
  double sum = 0;
  for (const TableFeature& feature : table.features) {
    sum += feature.pooling_factor * feature.poolings;
  }
  return sum;
}

double mean_pooling(const ShardingStudy& study) {
  double sum = 0;
  for (const ShardedTable& table : study.tables) sum += pooling_of(table);
  return std::max(1.0, sum / static_cast<double>(study.tables.size()));
}

using TableSizes = std::tuple<double, std::int64_t, std::int64_t>;  ///< pooling, rows, width
std::vector<TableSizes> sorted_sizes(const ShardingStudy& study) {
  std::vector<TableSizes> sizes;
  for (const ShardedTable& table : study.tables) {
    sizes.emplace_back(pooling_of(table), table.rows, table.dim);
  }
  std::ranges::sort(sizes);
  return sizes;
}

/// 0, 1, 2, 2, 1, 0, 0, 1, ...: each rank gets as much of a sorted list.
std::int64_t back_and_forth(std::int64_t number, std::int64_t ranks) {
  const std::int64_t at = number % (2 * ranks);
  return at < ranks ? at : 2 * ranks - 1 - at;
}

// As many layers as the study has, all of them small: the host does not see sizes.
DensePart small_layers(const ShardingStudy& study, std::int64_t dim) {
  DensePart small{.bottom_mlp = {13, dim}, .top_mlp = {1}};
  if (!study.dense || study.dense->forward_us) return small;
  const DensePart& dense = *study.dense;
  small.bottom_mlp.assign(std::max<std::size_t>(2, dense.bottom_mlp.size()), dim);
  std::size_t top = dense.top_mlp.size();
  if (dense.interaction == DensePart::Interaction::kLowRankCross) {
    top += 2 * static_cast<std::size_t>(dense.cross_layers);
  }
  small.top_mlp.assign(std::max<std::size_t>(1, top), dim);
  small.top_mlp.back() = 1;
  return small;
}

class TorchrecSteps {
 public:
  TorchrecSteps(const ShardingStudy& study, const Gpu& gpu, const Topology& topology,
                const BatchOptions& options, const OverheadTable& overheads,
                std::span<const Launching> launchings)
      : of_(study),
        gpu_(gpu),
        topology_(used_topology(study.network, topology)),
        options_(options),
        overheads_(overheads),
        launchings_(launchings),
        collectives_(make_collective_model(topology_)),
        models_(*options.models),
        dim_(mean_dim(study)),
        pooling_(mean_pooling(study)) {
    options_.step.reset();
    options_.device_factor = 1;
    models_.set(KernelFamily::kCollective, collectives_.get());
    world_ = std::max<std::int64_t>(2, *study.world);
    local_world_ = *study.world < 2 ? world_ : *study.local_world;
    few_ = static_cast<int>(std::clamp<std::int64_t>(world_, 8, 64));
    many_ = few_ + 32;
    senders_ = std::min<std::int64_t>(world_, few_);
  }

  Result<StepNeeds> needs(std::size_t launching) {
    launching_ = launching;
    next_ = 0;
    StepNeeds needs;
    PERFMODEL_TRY(whole, work_of_whole());
    const auto few = work({{StepNeeds::kVectors, few_}});
    const auto many = work({{StepNeeds::kVectors, many_}});
    const auto sums = work({{StepNeeds::kSums, few_}});
    const std::int64_t half = senders_ / 2;
    const auto on_half = work({{StepNeeds::kVectors, few_}}, half);
    for (const auto* one : {&few, &many, &sums, &on_half}) {
      if (!*one) return Unexpected{one->error()};
    }
    needs.world = *of_.world;
    needs.sender.add(without_layers(*few)).add(without_layers(*on_half), -1);
    needs.sender = BatchWork().add(needs.sender, 1.0 / static_cast<double>(senders_ - half));
    needs.sender.raise_to_zero();
    StepNeeds::Need& vectors = needs.kinds[StepNeeds::kVectors];
    vectors.table = per_table(*few, *many);
    const bool hosts = world_ > local_world_ && local_world_ > 1;
    for (const Kind kind : {StepNeeds::kSums, StepNeeds::kHostSums, StepNeeds::kCopies}) {
      if (kind == StepNeeds::kHostSums && !hosts) continue;
      const auto with_few = work({{StepNeeds::kVectors, few_}, {kind, few_}});
      const auto with_many = work({{StepNeeds::kVectors, few_}, {kind, many_}});
      if (!with_few) return Unexpected{with_few.error()};
      if (!with_many) return Unexpected{with_many.error()};
      StepNeeds::Need& need = needs.kinds[kind];
      need.table = per_table(*with_few, *with_many);
      need.once = without_layers(*with_few).add(without_layers(*few), -1);
      need.once.add(need.table, -few_);
    }
    // A step without any exchange is a step of sums, less the work that they add.
    const StepNeeds::Need& sum = needs.kinds[StepNeeds::kSums];
    BatchWork alone = without_layers(*sums).add(sum.once, -1).add(sum.table, -few_);
    vectors.once = without_layers(*few).add(alone, -1).add(vectors.table, -few_);
    vectors.once.add(needs.sender, -static_cast<double>(senders_));
    const auto tables = static_cast<double>(of_.tables.size());
    needs.batch = whole->add(vectors.once, -1).add(vectors.table, -tables);
    needs.batch.add(needs.sender, -std::min(tables, static_cast<double>(world_)));
    needs.has_layers = has_graph(of_);
    if (!needs.has_layers) drop_layers(needs.batch);
    if (*of_.world < 2) {
      for (StepNeeds::Need& need : needs.kinds) {
        need.once = {};
        need.table.device(BatchPart::kIdExchange) = 0;
      }
      needs.sender = {};
      needs.batch.device(BatchPart::kIdExchange) = 0;  // its preparation
    }
    return needs;
  }

 private:
  // Copies have few rows: what their sizes cost is part of their loads.
  static constexpr std::int64_t kRows = 100'000, kRowsOfCopies = 100;

  struct Group {
    Kind kind;
    int tables;
  };

  // The layers depend on the number of all tables: the graph of the whole job has them.
  static BatchWork without_layers(BatchWork work) {
    for (const BatchPart part : kLayerParts) work.device(part) = 0;
    return work;
  }

  // Layers that have no graph have no uploads of an index either.
  static void drop_layers(BatchWork& work) {
    work = without_layers(work);
    work.wait(HostWait::kIndexForward) = work.wait(HostWait::kIndexBackward) = 0;
  }

  BatchWork per_table(const BatchWork& few, const BatchWork& many) const {
    BatchWork table;
    table.add(without_layers(many), 1.0 / (many_ - few_));
    return table.add(without_layers(few), -1.0 / (many_ - few_));
  }

  ShardingStudy empty_study() const {
    ShardingStudy study;
    study.world = world_;
    study.local_world = local_world_;
    study.batch_per_rank = of_.batch_per_rank;
    return study;
  }

  ShardedTable table_like(std::int64_t rows, std::int64_t dim, double pooling,
                          std::size_t number) const {
    ShardedTable table;
    table.name = std::to_string(number);
    table.rows = rows;
    table.dim = dim;
    table.features = {{.pooling_factor = pooling}};
    const TableOptimizer optimizer = of_.tables.front().optimizer;
    table.optimizer = optimizer == TableOptimizer::kNone ? TableOptimizer::kSgd : optimizer;
    return table;
  }

  static TablePlacement on_rank(std::int64_t rank) {
    return {.type = ShardingType::kTableWise, .ranks = {rank}};
  }

  Result<BatchWork> work(std::initializer_list<Group> groups) { return work(groups, senders_); }

  // Whole tables are on the first `senders` ranks.
  Result<BatchWork> work(std::initializer_list<Group> groups, std::int64_t senders) {
    ShardingStudy study = empty_study();
    study.dense = DensePart{.bottom_mlp = {13, dim_}, .top_mlp = {1}};
    std::vector<TablePlacement> placements;
    for (const Group& group : groups) {
      for (int i = 0; i < group.tables; ++i) {
        const std::int64_t rows = group.kind == StepNeeds::kCopies ? kRowsOfCopies : kRows;
        study.tables.push_back(table_like(rows, dim_, pooling_, study.tables.size()));
        TablePlacement placement{.type = type_of(group.kind)};
        if (group.kind == StepNeeds::kCopies) placement.kernel = ComputeKernel::kDense;
        if (group.kind == StepNeeds::kVectors) placement = on_rank(i % senders);
        if (group.kind == StepNeeds::kHostSums) {
          for (std::int64_t r = 0; r < local_world_; ++r) placement.ranks.push_back(r);
        }
        placements.push_back(std::move(placement));
      }
    }
    return work_of(study, placements);
  }

  // Sorted, so that their order does not say which tables are on rank 0.
  Result<BatchWork> work_of_whole() {
    ShardingStudy study = empty_study();
    const bool graph = has_graph(of_);
    study.dense = graph ? *of_.dense : small_layers(of_, dim_);
    std::vector<TablePlacement> placements;
    for (const auto& [pooling, rows, dim] : sorted_sizes(of_)) {
      const std::size_t number = study.tables.size();
      study.tables.push_back(table_like(rows, graph ? dim : dim_, pooling, number));
      placements.push_back(on_rank(back_and_forth(static_cast<std::int64_t>(number), world_)));
    }
    return work_of(study, placements);
  }

  // The work of rank 0 without its lookups, for each way to launch.
  Result<std::vector<BatchWork>> works_of(const ShardingStudy& study,
                                          const std::vector<TablePlacement>& placements) const {
    PERFMODEL_TRY(model, BatchModel::make(study, gpu_, topology_, options_));
    auto graph = sharded_dlrm(study, placements).and_then([&](const auto& config) {
      return graph_of_rank(config, study);
    });
    if (!graph) return Unexpected{graph.error()};
    PERFMODEL_TRY(time, model->time(placements));
    const PartTimes& parts = time->ranks.front().parts;
    PERFMODEL_TRY(facts, make_host_facts(*graph, overheads_, std::nullopt));
    std::vector<BatchWork> works;
    for (const Launching launching : launchings_) {
      PredictOptions options;
      options.models = &models_;
      options.topology = &topology_;
      options.launching = launching;
      options.keep_calls = true;
      options.step_range = false;
      PERFMODEL_TRY(prediction, predict_with(*graph, gpu_, overheads_, &*facts, options,
                                             /*added_bytes=*/{}, /*stages=*/1, /*memory=*/false));
      BatchWork work = torchrec_step_parts(*prediction, overheads_.device.kernel_gap_us);
      for (const BatchPart part : {BatchPart::kLookupForward, BatchPart::kLookupBackward}) {
        work.device(part) -= parts[part];
      }
      works.push_back(std::move(work));
    }
    return works;
  }

  // Every way to launch asks for the same jobs in the same order: each is made once.
  Result<BatchWork> work_of(const ShardingStudy& study,
                            const std::vector<TablePlacement>& placements) {
    if (next_ == works_.size()) {
      PERFMODEL_TRY(works, works_of(study, placements));
      works_.push_back(std::move(*works));
    }
    return works_[next_++][launching_];
  }

  const ShardingStudy& of_;
  const Gpu& gpu_;
  const Topology topology_;
  BatchOptions options_;
  const OverheadTable& overheads_;
  const std::span<const Launching> launchings_;
  std::size_t launching_ = 0;  // into them
  const std::unique_ptr<KernelModel> collectives_;
  KernelModels models_;
  const std::int64_t dim_;
  const double pooling_;
  std::int64_t world_ = 2, local_world_ = 2, senders_ = 2;
  int few_ = 0, many_ = 0;                     // tables
  std::vector<std::vector<BatchWork>> works_;  // per job and way to launch
  std::size_t next_ = 0;                       // job
};

}  // namespace

Result<std::vector<StepNeeds>> torchrec_steps(const ShardingStudy& study, const Gpu& gpu,
                                              const Topology& topology, const BatchOptions& options,
                                              const OverheadTable& overheads,
                                              std::span<const Launching> launchings) {
  TorchrecSteps steps(study, gpu, topology, options, overheads, launchings);
  std::vector<StepNeeds> all;
  for (std::size_t launching = 0; launching < launchings.size(); ++launching) {
    PERFMODEL_TRY(needs, steps.needs(launching));
    all.push_back(std::move(*needs));
  }
  return all;
}

Result<StepNeeds> torchrec_step(const ShardingStudy& study, const Gpu& gpu,
                                const Topology& topology, const BatchOptions& options,
                                const OverheadTable& overheads, Launching launching) {
  return TorchrecSteps(study, gpu, topology, options, overheads, {&launching, 1}).needs(0);
}

}  // namespace perfmodel::sharding
