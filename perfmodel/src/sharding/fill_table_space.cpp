#include "fill_table_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>

#include "base/contains.hpp"
#include "refuse_table.hpp"

namespace perfmodel::sharding {
namespace {

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
  add(table.deduplicated);
  add(table.hot_rows);
  add(table.features.size());
  for (const TableFeature& feature : table.features) {
    add(feature.pooling_factor);
    add(feature.poolings);
    add(feature.batch.value_or(-1));
    add_all(feature.rank_batches);
  }
  add(table.least_columns);
  add(table.skew.exponent);
  add(table.skew.shift);
  add(table.cache.load_factor);
  add(table.cache.prefetches);
  add(table.cache.given);
  add(table.cache.statistics ? table.cache.statistics->expected_lookups : -1.0);
  if (table.cache.statistics) add_all(table.cache.statistics->distances);
  add(table.forward_wire_bytes.value_or(-1));
  add(table.backward_wire_bytes.value_or(-1));
  add_all(table.rules.types);
  add_all(table.rules.kernels);
  add_all(table.rules.forbidden_ranks);
  return print;
}

class Filling {
 public:
  Filling(std::span<const ShardedTable> tables, const OptionsOfTable& options_of, TableSpace& made)
      : tables_(tables), options_of_(options_of), made_(made) {}

  Result<void> run() {
    collect_units();
    PlanSpace& space = made_.space;
    std::unordered_map<std::string, std::uint32_t> known;
    for (const auto& unit : made_.tables) {
      const bool together = !tables_[unit.front()].rules.keep_with.empty();
      std::string print = together ? "together" : "";
      for (std::uint32_t table : unit) print += fingerprint(tables_[table]);
      const auto [found, is_new] =
          known.try_emplace(print, static_cast<std::uint32_t>(space.choices.size()));
      space.choices_of_table.push_back(found->second);
      if (!is_new) continue;
      PERFMODEL_TRY(choices, together ? choices_together(unit) : choices_of(unit.front(), false));
      drop_what_never_fits(*choices);
      space.choices.push_back(std::move(*choices));
    }
    return {};
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

  Result<TableChoices> choices_of(std::uint32_t table, bool together) const {
    PERFMODEL_TRY(options, options_of_(table, together));
    return TableChoices{.options = std::move(*options),
                        .forbidden_ranks = tables_[table].rules.forbidden_ranks};
  }

  // Whole, on one rank, with a kernel that all of them may have.
  Result<TableChoices> choices_together(const std::vector<std::uint32_t>& unit) const {
    TableChoices sum;
    for (std::uint32_t t : unit) {
      const ShardedTable& table = tables_[t];
      const std::vector<ShardingType>& types = table.rules.types;
      if (!types.empty() && !contains(types, ShardingType::kTableWise)) {
        return refuse_table(
            table,
            fmt::format("table_wise among its types, as it is kept with others ({})",
                        table.rules.keep_with),
            "it missing");
      }
      PERFMODEL_TRY(choices, choices_of(t, true));
      if (t == unit.front()) {
        sum = std::move(*choices);
      } else {
        join(sum, *choices);
      }
    }
    if (sum.options.empty()) {
      return decline(fmt::format(
          "tables kept together ({}): expected a kernel that all of them may have, found none",
          tables_[unit.front()].rules.keep_with));
    }
    return sum;
  }

  static void join(TableChoices& sum, const TableChoices& choices) {
    std::vector<PlacementOption> joint;
    for (PlacementOption& option : sum.options) {
      for (const PlacementOption& other : choices.options) {
        if (option.kernel != other.kernel || option.settings != other.settings) continue;
        ShardDemand& demand = option.shards.front().demand;
        const ShardDemand& more = other.shards.front().demand;
        for (std::size_t p = 0; p < kMostPhases; ++p) demand.loads[p] += more.loads[p];
        demand.hbm_bytes += more.hbm_bytes;
        demand.ddr_bytes += more.ddr_bytes;
        joint.push_back(option);
        break;
      }
    }
    sum.options = std::move(joint);
    add_each_once(sum.forbidden_ranks, choices.forbidden_ranks);
  }

  void drop_what_never_fits(TableChoices& choices) const {
    const auto fits = [&](const PlacementOption& option) {
      return std::all_of(option.shards.begin(), option.shards.end(), [&](const auto& run) {
        return run.demand.hbm_bytes <= made_.space.hbm_cap &&
               run.demand.ddr_bytes <= made_.space.ddr_cap;
      });
    };
    if (std::none_of(choices.options.begin(), choices.options.end(), fits)) return;
    std::erase_if(choices.options, [&](const PlacementOption& option) { return !fits(option); });
  }

  std::span<const ShardedTable> tables_;
  const OptionsOfTable& options_of_;
  TableSpace& made_;
};

}  // namespace

Result<void> fill_table_space(std::span<const ShardedTable> tables,
                              const OptionsOfTable& options_of, TableSpace& space) {
  return Filling(tables, options_of, space).run();
}

}  // namespace perfmodel::sharding
