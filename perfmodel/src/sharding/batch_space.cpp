#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/contains.hpp"
#include "batch_job.hpp"
#include "batch_slopes.hpp"
#include "fill_table_space.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"
#include "price/kernels/embedding_rates.hpp"

/// The search space of BatchModel: its schedule taken apart into phases that ranks pass together.
///
///   phase 0  lookups forward      no floor
///   phase 1  vector exchange      no shorter than the bottom MLP, which runs in parallel
///   phase 2  gradient exchange    no shorter than the bottom MLP's backward pass
///   phase 3  lookups backward     no shorter than the dense all-reduce in parallel
///   phase 4  id exchange          of a later batch: no shorter than the top MLP in parallel
///   phase 5  prefetch             of a later batch: no shorter than the given time
///
/// Within a phase loads add up, which is exact for bytes and nearly so for lookups. Fixed costs of
/// collectives do not depend on the plan as long as the kinds of sharding stay the same; full
/// schedules of the plans found decide.
namespace perfmodel::sharding {
namespace {

enum Phase : std::size_t { kForward, kVectors, kGradients, kBackward, kIds, kPrefetch, kPhases };

// Time that one more byte takes [us], past all latencies.
double slope_us_per_byte(const std::function<double(double)>& time_us) {
  constexpr double kSmall = 16e6, kLarge = 128e6;
  return std::max(0.0, (time_us(kLarge) - time_us(kSmall)) / (kLarge - kSmall));
}

}  // namespace

bool is_of_kinds(ShardingType type, const BatchModel::SpaceOptions& options) {
  const bool allowed[] = {options.vectors, options.sums, options.host_sums, options.copies};
  return allowed[StepNeeds::kind_of(type)];
}

std::vector<TablePlacement> of_kinds(std::vector<TablePlacement> ways,
                                     const BatchModel::SpaceOptions& options) {
  std::vector<TablePlacement> kept;
  for (const TablePlacement& way : ways) {
    if (!options.hashed && way.kernel == ComputeKernel::kHashed) continue;
    if (is_of_kinds(way.type, options)) kept.push_back(way);
  }
  const bool only_copies = std::all_of(kept.begin(), kept.end(), [](const TablePlacement& way) {
    return way.type == ShardingType::kDataParallel;
  });
  return only_copies ? ways : kept;
}

BatchModel::Slopes BatchModel::slopes() const {
  const auto all = [&](CollectiveKind kind) {
    return slope_us_per_byte([&](double bytes) { return collective_us(kind, bytes).value_or(0); });
  };
  const auto inside = [&](CollectiveKind kind) {
    if (local_world_ == 1) return 0.0;
    return slope_us_per_byte([&](double bytes) {
      const auto time = collective_time(
          topology_, {.kind = kind, .bytes = {bytes}, .ranks = static_cast<int>(local_world_)});
      return time ? time->time.count() : 0;
    });
  };
  Slopes s;
  s.ids = all(CollectiveKind::kAllToAll);
  s.all_to_all = s.ids + exchange_copy_us_per_byte(options_.software);
  s.reduce_scatter = all(CollectiveKind::kReduceScatter);
  s.all_gather = all(CollectiveKind::kAllGather);
  s.all_reduce = all(CollectiveKind::kAllReduce);
  const double between = nodes() == 1 ? 0 : slope_us_per_byte([&](double bytes) {
                                              return between_hosts_us(bytes).value_or(0);
                                            }) / static_cast<double>(local_world_);
  s.host_sum = inside(CollectiveKind::kReduceScatter) + between;
  s.host_sum_gradient = inside(CollectiveKind::kAllGather) + between;

  constexpr std::int64_t kManyBags = 1 << 24;
  const EmbeddingRates rates = embedding_rates({.batch = kManyBags, .pooling_factor = 1}, gpu_);
  s.bag_us = rates.stall_us / static_cast<double>(kManyBags);
  s.l2 = 1 / rates.l2_bytes_per_us;
  s.dram = 1 / rates.dram_bytes_per_us;
  s.link = 1 / row_link_bytes_per_us(gpu_);
  // Cost of the sort, as in lookup_time(): the difference between many ids and more.
  ShardLoad few, many;
  constexpr double kIds = 4e6, kRows = 1e8;
  few[Load::kForwardBags] = many[Load::kForwardBags] = 1;
  few[Load::kSortedIds] = kIds;
  many[Load::kSortedIds] = 2 * kIds;
  few[Load::kSortedRows] = many[Load::kSortedRows] = kRows;
  const auto backward = [&](const ShardLoad& load) {
    return lookup_time(load, options_.software, gpu_, *options_.models).backward_us;
  };
  s.id_us = (backward(many) - backward(few)) / kIds;
  return s;
}

ShardDemand BatchModel::demand(const ShardLoad& load, const Slopes& s) const {
  const double ranks = static_cast<double>(world());
  const double leaves = (ranks - 1) / ranks;
  ShardDemand demand;
  demand.loads[kForward] =
      std::hypot(s.bag_us * load[Load::kForwardBags], s.l2 * load[Load::kForwardL2Bytes],
                 s.dram * load[Load::kForwardDramBytes]) +
      s.link * load[Load::kForwardLinkBytes];
  demand.loads[kVectors] =
      leaves * s.all_to_all * load[Load::kVectorBytes] + s.host_sum * load[Load::kHostSumBytes];
  demand.loads[kGradients] = leaves * s.all_to_all * load[Load::kGradientBytes] +
                             s.host_sum_gradient * load[Load::kHostSumGradientBytes];
  demand.loads[kIds] = leaves * s.ids * load[Load::kIdBytes];
  demand.loads[kBackward] =
      s.id_us * load[Load::kSortedIds] +
      std::max(s.dram * load[Load::kBackwardDramBytes], s.l2 * load[Load::kBackwardL2Bytes]) +
      s.link * load[Load::kBackwardLinkBytes];
  demand.loads[kPrefetch] = s.link * load[Load::kPrefetchLinkBytes];
  if (options_.software == TableSoftware::kPerTable) {
    const LookupTime one = lookup_time(load, options_.software, gpu_, *options_.models);
    demand.loads[kForward] = one.forward_us;
    demand.loads[kBackward] = one.backward_us;
  }
  return demand;
}

double BatchModel::exposed_us(const ShardDemand& demand, const BatchTime& near) {
  const auto exposed = [&](BatchPart part) { return near.critical[part] > 0 ? 1.0 : 0.0; };
  return demand.loads[kForward] + demand.loads[kBackward] +
         exposed(BatchPart::kVectorExchange) * demand.loads[kVectors] +
         exposed(BatchPart::kGradientExchange) * demand.loads[kGradients] +
         exposed(BatchPart::kIdExchange) * demand.loads[kIds] +
         exposed(BatchPart::kPrefetch) * demand.loads[kPrefetch];
}

// Cost for all ranks of a table that each rank has a part of.
void BatchModel::add_shared(const ShardedTable& of, ShardingType type, const Slopes& s,
                            double all_reduce_share, ShardDemand& demand) const {
  if (type == ShardingType::kRowWise && of.gives_sums()) {
    const VectorBytes bytes = vector_bytes(of, world(), *study_.batch_per_rank);
    demand.loads[kVectors] += s.reduce_scatter * bytes.forward;
    demand.loads[kGradients] += s.all_gather * bytes.backward;
  } else if (type == ShardingType::kDataParallel) {
    const double bytes = static_cast<double>(of.rows * of.dim) * of.element_bytes;
    demand.loads[kBackward] += all_reduce_share * s.all_reduce * bytes;
  }
}

Result<PlacementOption> BatchModel::option_of(
    std::size_t table, const TablePlacement& placement,
    const std::function<ShardDemand(const ShardLoad&)>& demand_of) const {
  PERFMODEL_TRY(cut, sizes(table, placement));
  PlacementOption option{.type = placement.type,
                         .kernel = placement.kernel,
                         .least_columns = placement.least_columns,
                         .shards = {},
                         .settings = placement.settings};
  for (std::size_t i = 0; i < cut->size(); ++i) {
    if (i > 0 && (*cut)[i] == (*cut)[i - 1]) {
      ++option.shards.back().count;
      continue;
    }
    PlacementOption::Run run;
    if ((*cut)[i].rows > 0) {
      const ShardLoad of_shard = load(table, (*cut)[i], placement);
      run.demand = demand_of(of_shard);
      run.demand.hbm_bytes = static_cast<std::int64_t>(std::ceil(of_shard.hbm_bytes()));
      run.demand.ddr_bytes = static_cast<std::int64_t>(std::ceil(of_shard[Load::kHostBytes]));
    }
    option.shards.push_back(run);
  }
  return option;
}

Result<PlacementOption> BatchModel::option(std::size_t table, const TablePlacement& placement,
                                           const Slopes& s, double all_reduce_share) const {
  auto option = option_of(table, placement, [&](const ShardLoad& load) { return demand(load, s); });
  if (!option || placement.kernel == ComputeKernel::kHashed) return option;
  const ShardedTable of = settled(study_.tables[table], used_settings(placement));
  for (PlacementOption::Run& run : option->shards) {
    add_shared(of, placement.type, s, all_reduce_share, run.demand);
  }
  return option;
}

// Ways to cut a table that its rules allow.
std::vector<TablePlacement> BatchModel::ways(const ShardedTable& table) const {
  const PlacementRules& rules = table.rules;
  const auto named = [&](ShardingType type) { return contains(rules.types, type); };
  const auto allowed = [&](ShardingType type) { return rules.types.empty() || named(type); };
  std::vector<ComputeKernel> kernels;
  bool dense = rules.kernels.empty(), hashed = false;
  for (ComputeKernel kernel : rules.kernels) {
    if (kernel == ComputeKernel::kDense) {
      dense = true;
    } else if (kernel == ComputeKernel::kHashed) {
      hashed = study_.hashed.has_value();
    } else {
      kernels.push_back(kernel);
    }
  }
  if (rules.kernels.empty()) kernels = {ComputeKernel::kFused};
  const bool many = world() > 1, hosts = nodes() > 1;
  std::vector<TablePlacement> ways;
  for (ComputeKernel kernel : kernels) {
    const std::size_t first = ways.size();
    const auto add = [&](ShardingType type, std::int64_t columns = 0) {
      ways.push_back({.type = type, .kernel = kernel, .ranks = {}, .least_columns = columns});
    };
    if (allowed(ShardingType::kTableWise)) add(ShardingType::kTableWise);
    if (many && allowed(ShardingType::kRowWise)) add(ShardingType::kRowWise);
    if (hosts && local_world_ > 1 && allowed(ShardingType::kTableRowWise)) {
      add(ShardingType::kTableRowWise);
    }
    if (many && named(ShardingType::kRowSplit)) {
      for (std::int64_t parts = 2; parts <= world(); parts *= 2) {
        ways.push_back({.type = ShardingType::kRowSplit,
                        .kernel = kernel,
                        .ranks = std::vector<std::int64_t>(parts)});
      }
    }
    if (hosts && named(ShardingType::kHostRowSplit)) {
      for (std::int64_t on = 2; on <= nodes(); on *= 2) {
        ways.push_back({.type = ShardingType::kHostRowSplit,
                        .kernel = kernel,
                        .ranks = std::vector<std::int64_t>(on * local_world_)});
      }
    }
    for (const ShardingType type :
         {ShardingType::kColumnWise, ShardingType::kTableColumnWise, ShardingType::kGrid}) {
      const bool offered = type == ShardingType::kColumnWise ? many && allowed(type)
                           : type == ShardingType::kGrid     ? hosts && named(type)
                                                             : hosts && allowed(type);
      if (!offered) continue;
      const std::int64_t most = type == ShardingType::kTableColumnWise ? local_world_ : world();
      const std::vector<std::int64_t> widths = column_widths(table);
      for (std::int64_t width : widths) {
        if (table.dim / width <= most) add(type, width);
      }
      // Columns that do not divide stay one piece, as TorchRec cuts them.
      if (widths.empty() && named(type)) add(type, table.dim);
    }
    if (kernel != ComputeKernel::kFusedUvmCaching || !study_.searched.cache_share ||
        table.cache.given) {
      continue;
    }
    const std::vector<TablePlacement> own(ways.begin() + static_cast<std::ptrdiff_t>(first),
                                          ways.end());
    for (const double share : {0.02, 0.05, 0.1, 0.2, 0.5}) {
      if (share == table.cache.load_factor) continue;
      for (TablePlacement way : own) {
        way.settings.cache_share = share;
        ways.push_back(std::move(way));
      }
    }
  }
  if (many && dense && allowed(ShardingType::kDataParallel)) {
    ways.push_back({.type = ShardingType::kDataParallel, .kernel = ComputeKernel::kDense});
  }
  if (hashed && allowed(ShardingType::kDataParallel)) {
    ways.push_back({.type = ShardingType::kDataParallel, .kernel = ComputeKernel::kHashed});
  }
  return ways;
}

// Halves of a table's columns, down to one sector of memory: narrower pieces would read the same.
std::vector<std::int64_t> BatchModel::column_widths(const ShardedTable& table) {
  constexpr std::int64_t kSector = 32, kMultiple = 4;
  std::vector<std::int64_t> widths;
  for (std::int64_t width = table.dim / 2;
       width >= kMultiple && width * table.element_bytes >= kSector; width /= 2) {
    if (table.dim % width == 0 && width % kMultiple == 0) widths.push_back(width);
  }
  return widths;
}

Result<std::vector<PlacementOption>> BatchModel::options_of(std::uint32_t table, bool together,
                                                            const Slopes& slopes,
                                                            const SpaceOptions& options) const {
  std::vector<PlacementOption> made;
  std::vector<TablePlacement> all = ways(study_.tables[table]);
  if (!together) all = of_kinds(std::move(all), options);
  for (TablePlacement& way : all) {
    if (together && way.type != ShardingType::kTableWise) continue;
    // Tables kept together share one placement, which cannot hold the settings of each.
    if (options.settings && !together) {
      const auto chosen = options.settings->find({like_[table], way.type});
      if (chosen != options.settings->end()) {
        const auto share = way.settings.cache_share;
        way.settings = chosen->second;
        way.settings.cache_share = share;
      }
    }
    PERFMODEL_TRY(option, this->option(table, way, slopes, options.all_reduce_share));
    made.push_back(std::move(*option));
  }
  if (made.empty()) {
    return decline(fmt::format(
        "table {}: expected a type and a kernel that go together on this machine, found none",
        study_.tables[table].name));
  }
  return made;
}

// Ids of all samples and, for one bag each, a length.
double BatchModel::id_bytes() const {
  constexpr double kIdAndLength = 12;
  double ids = 0;
  for (const ShardedTable& table : study_.tables) {
    for (const TableFeature& feature : table.features) {
      ids += feature.samples_of_job(*study_.batch_per_rank, world()) * feature.poolings *
             std::max(1.0, feature.pooling_factor);
    }
  }
  return kIdAndLength * ids;
}

bool BatchModel::prefetches() const {
  if (study_.pipeline != TorchrecSettings::Pipeline::kPrefetchSparseDist) return false;
  return std::any_of(study_.tables.begin(), study_.tables.end(), [](const ShardedTable& table) {
    const auto& kernels = table.rules.kernels;
    return std::find(kernels.begin(), kernels.end(), ComputeKernel::kFusedUvmCaching) !=
           kernels.end();
  });
}

// Memory on every rank for tables that are deduplicated or have hot rows: an upper limit, whatever
// their placement.
std::int64_t BatchModel::bytes_at_home(const SpaceOptions& options) const {
  double bytes = 0;
  for (std::size_t t = 0; t < study_.tables.size(); ++t) {
    double most = has_load_at_home(study_.tables[t]) ? home_load(t, {}).hbm_bytes() : 0;
    if (options.settings) {
      const auto begin = options.settings->lower_bound({like_[t], ShardingType::kDataParallel});
      for (auto way = begin; way != options.settings->end() && way->first.first == like_[t];
           ++way) {
        most = std::max(most, home_load(t, way->second).hbm_bytes());
      }
    }
    bytes += most;
  }
  return static_cast<std::int64_t>(std::ceil(bytes));
}

Result<TableSpace> BatchModel::space(const SpaceOptions& options) const {
  TableSpace made;
  PlanSpace& space = made.space;
  space.world = world();
  space.local_world = local_world_;
  space.hbm_cap = static_cast<std::int64_t>(std::max(0.0, table_memory()));
  space.floors[kVectors] = dense_.bottom_forward_us;
  space.floors[kGradients] = dense_.bottom_backward_us;
  if (is_pipelined()) space.floors[kIds] = dense_.top_forward_us + dense_.top_backward_us;
  const Slopes s = slopes();
  // The phase is left out if the exchange would be hidden even with all ids on one rank.
  space.phases = prefetches()                              ? kPhases
                 : s.ids * id_bytes() > space.floors[kIds] ? kPrefetch
                                                           : kIds;
  space.floors[kPrefetch] = options.beside_prefetch_us;
  space.hbm_cap = std::max<std::int64_t>(0, space.hbm_cap - bytes_at_home(options));
  space.floors[kBackward] = s.all_reduce * dense_.gradient_bytes;
  const auto of_table = [&](std::uint32_t table, bool together) {
    return options_of(table, together, s, options);
  };
  PERFMODEL_TRY_TO(fill_table_space(study_.tables, of_table, made));
  return made;
}

}  // namespace perfmodel::sharding
