#include "perfmodel/sharding/torchrec_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace perfmodel::sharding {
namespace {

bool cuts_columns(ShardingType type) {
  return type == ShardingType::kColumnWise || type == ShardingType::kTableColumnWise ||
         type == ShardingType::kGrid;
}

std::vector<ShardingType> types_of(const ShardedTable& table) {
  if (!table.rules.types.empty()) return table.rules.types;
  return {ShardingType::kDataParallel, ShardingType::kTableWise,    ShardingType::kColumnWise,
          ShardingType::kRowWise,      ShardingType::kTableRowWise, ShardingType::kTableColumnWise};
}

std::vector<ComputeKernel> kernels_of(const ShardedTable& table) {
  if (!table.rules.kernels.empty()) return table.rules.kernels;
  return {ComputeKernel::kDense, ComputeKernel::kFused};
}

ShardDemand demand_of(const TorchrecCost& cost) {
  ShardDemand demand;
  demand.loads[0] = cost.total_ms();
  demand.hbm_bytes = cost.hbm_bytes;
  demand.ddr_bytes = cost.ddr_bytes;
  return demand;
}

// Everything that costs and rules depend on, so not the name.
std::string fingerprint(const ShardedTable& table) {
  std::string print;
  const auto add = [&](auto value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    print.append(bytes, sizeof value);
  };
  const auto add_all = [&](const auto& values) {
    add(values.size());
    for (const auto& value : values) add(value);
  };
  add(table.rows);
  add(table.dim);
  add(table.element_bytes);
  add(table.output_bytes.value_or(-1));
  add(table.optimizer);
  add(table.weighted);
  add(table.pooled);
  add(table.features.size());
  for (const TableFeature& feature : table.features) {
    add(feature.pooling_factor);
    add(feature.poolings);
    add(feature.batch.value_or(-1));
  }
  add(table.least_columns);
  add(table.cache.load_factor);
  add(table.cache.prefetches);
  add(table.cache.statistics ? table.cache.statistics->expected_lookups : -1.0);
  if (table.cache.statistics) add_all(table.cache.statistics->distances);
  add(table.forward_wire_bytes.value_or(-1));
  add(table.backward_wire_bytes.value_or(-1));
  add_all(table.rules.types);
  add_all(table.rules.kernels);
  add_all(table.rules.forbidden_ranks);
  return print;
}

class Building {
 public:
  Building(std::span<const ShardedTable> tables, const TorchrecTopology& topology,
           const TorchrecSettings& settings, const TorchrecSpaceOptions& options)
      : tables_(tables), topology_(topology), settings_(settings), options_(options) {}

  Result<TorchrecSpace> of() {
    if (options_.hbm_cap < 1) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected memory for tables, found {} bytes", options_.hbm_cap));
    }
    PlanSpace& space = made_.space;
    space.world = topology_.world;
    space.local_world = topology_.local_world;
    space.hbm_cap = options_.hbm_cap;
    space.ddr_cap = topology_.ddr_cap;
    collect_units();
    for (const auto& unit : made_.tables) {
      const bool together = !tables_[unit.front()].rules.keep_with.empty();
      std::string print = together ? "together" : "";
      for (std::uint32_t table : unit) print += fingerprint(tables_[table]);
      const auto [known, is_new] =
          known_.try_emplace(print, static_cast<std::uint32_t>(space.choices.size()));
      space.choices_of_table.push_back(known->second);
      if (!is_new) continue;
      auto choices = together ? choices_together(unit) : choices_of(tables_[unit.front()]);
      if (!choices) return Unexpected{choices.error()};
      drop_what_never_fits(*choices);
      space.choices.push_back(std::move(*choices));
    }
    return std::move(made_);
  }

 private:
  void collect_units() {
    std::map<std::string, std::size_t> groups;
    for (std::uint32_t t = 0; t < tables_.size(); ++t) {
      const std::string& group = tables_[t].rules.keep_with;
      if (!group.empty()) {
        const auto [known, is_new] = groups.try_emplace(group, made_.tables.size());
        if (!is_new) {
          made_.tables[known->second].push_back(t);
          continue;
        }
      }
      made_.tables.push_back({t});
    }
  }

  Result<TableChoices> choices_of(const ShardedTable& table) {
    TableChoices choices;
    choices.forbidden_ranks = table.rules.forbidden_ranks;
    for (ShardingType type : types_of(table)) {
      for (ComputeKernel kernel : kernels_of(table)) {
        if ((type == ShardingType::kDataParallel) != (kernel == ComputeKernel::kDense)) continue;
        if (auto good = add_option(table, type, kernel, 0, choices); !good) {
          return Unexpected{good.error()};
        }
        if (!cuts_columns(type)) continue;
        for (std::int64_t columns : options_.least_columns) {
          if (auto good = add_option(table, type, kernel, columns, choices); !good) {
            return Unexpected{good.error()};
          }
        }
      }
    }
    if (choices.options.empty()) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("table {}: expected types and kernels that go together (dense: "
                              "data_parallel, others: all other types), found none",
                              table.name));
    }
    return choices;
  }

  Result<void> add_option(const ShardedTable& table, ShardingType type, ComputeKernel kernel,
                          std::int64_t least_columns, TableChoices& choices) {
    ShardedTable cut = table;
    if (least_columns > 0) cut.least_columns = least_columns;
    const auto costs = torchrec_costs(cut, type, kernel, topology_, settings_);
    if (!costs) return Unexpected{costs.error()};
    PlacementOption option{type, kernel, least_columns, {}};
    for (std::size_t i = 0; i < costs->size(); ++i) {
      const bool same = i > 0 && (*costs)[i].size == (*costs)[i - 1].size;
      if (same) {
        ++option.shards.back().count;
      } else {
        option.shards.push_back({1, demand_of((*costs)[i])});
      }
    }
    choices.options.push_back(std::move(option));
    return {};
  }

  // Whole, on one rank, with a kernel that all of them may have.
  Result<TableChoices> choices_together(const std::vector<std::uint32_t>& unit) {
    TableChoices sum;
    for (std::uint32_t t : unit) {
      ShardedTable table = tables_[t];
      const std::vector<ShardingType> types = types_of(table);
      if (std::find(types.begin(), types.end(), ShardingType::kTableWise) == types.end()) {
        return fail(ErrorCode::kImpossible,
                    fmt::format("table {}: expected table_wise among its types, as it is kept with "
                                "others ({}), found it missing",
                                table.name, table.rules.keep_with));
      }
      table.rules.types = {ShardingType::kTableWise};
      auto choices = choices_of(table);
      if (!choices) return choices;
      if (t == unit.front()) {
        sum = std::move(*choices);
      } else {
        join(sum, *choices);
      }
    }
    if (sum.options.empty()) {
      const ShardedTable& first = tables_[unit.front()];
      return fail(ErrorCode::kImpossible,
                  fmt::format("tables kept together ({}): expected a kernel that all of them may "
                              "have, found none",
                              first.rules.keep_with));
    }
    return sum;
  }

  static void join(TableChoices& sum, const TableChoices& choices) {
    std::vector<PlacementOption> joint;
    for (PlacementOption& option : sum.options) {
      for (const PlacementOption& other : choices.options) {
        if (option.kernel != other.kernel) continue;
        ShardDemand& demand = option.shards.front().demand;
        demand.loads[0] += other.shards.front().demand.loads[0];
        demand.hbm_bytes += other.shards.front().demand.hbm_bytes;
        demand.ddr_bytes += other.shards.front().demand.ddr_bytes;
        joint.push_back(option);
        break;
      }
    }
    sum.options = std::move(joint);
    for (std::int64_t rank : choices.forbidden_ranks) {
      auto& ranks = sum.forbidden_ranks;
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
    }
  }

  void drop_what_never_fits(TableChoices& choices) const {
    const auto fits = [&](const PlacementOption& option) {
      return std::all_of(option.shards.begin(), option.shards.end(), [&](const auto& run) {
        return run.demand.hbm_bytes <= options_.hbm_cap &&
               run.demand.ddr_bytes <= topology_.ddr_cap;
      });
    };
    if (std::none_of(choices.options.begin(), choices.options.end(), fits)) return;
    std::erase_if(choices.options, [&](const PlacementOption& option) { return !fits(option); });
  }

  std::span<const ShardedTable> tables_;
  const TorchrecTopology& topology_;
  const TorchrecSettings& settings_;
  const TorchrecSpaceOptions& options_;
  std::unordered_map<std::string, std::uint32_t> known_;  // choices by fingerprint
  TorchrecSpace made_;
};

}  // namespace

Result<TorchrecSpace> make_torchrec_space(std::span<const ShardedTable> tables,
                                          const TorchrecTopology& topology,
                                          const TorchrecSettings& settings,
                                          const TorchrecSpaceOptions& options) {
  return Building(tables, topology, settings, options).of();
}

std::vector<TablePlacement> placements_of(const TorchrecSpace& space, const FoundPlan& plan) {
  PERFMODEL_CHECK(plan.tables.size() == space.tables.size());
  std::size_t count = 0;
  for (const auto& unit : space.tables) count += unit.size();
  std::vector<TablePlacement> placements(count);
  for (std::size_t u = 0; u < plan.tables.size(); ++u) {
    const PlacedChoice& placed = plan.tables[u];
    const TableChoices& choices = space.space.choices[space.space.choices_of_table[u]];
    const PlacementOption& option = choices.options[placed.option];
    const TablePlacement placement{option.type,
                                   option.kernel,
                                   {placed.ranks.begin(), placed.ranks.end()},
                                   option.least_columns};
    for (std::uint32_t table : space.tables[u]) placements[table] = placement;
  }
  return placements;
}

}  // namespace perfmodel::sharding
