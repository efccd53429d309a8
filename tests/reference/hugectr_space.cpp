#include "hugectr_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

namespace perfmodel::sharding {
namespace {

constexpr double kBytesPerGb = 1e9;

double hotness_of(const ShardedTable& table) {
  double hotness = 0;
  for (const TableFeature& feature : table.features) hotness += feature.pooling_factor;
  return hotness;
}

double gigabytes_of(const ShardedTable& table, const HugectrSettings& settings) {
  return static_cast<double>(table.rows * settings.row_elements) * settings.bytes_per_element /
         kBytesPerGb;
}

Unexpected refuse(std::string_view expected, auto found) {
  return fail(ErrorCode::kImpossible, fmt::format("expected {}, found {}", expected, found));
}

bool is_positive(double value) { return value > 0 && std::isfinite(value); }

Result<void> check(std::span<const ShardedTable> tables, const HugectrSettings& settings) {
  if (settings.nodes < 1 || settings.gpus_per_node < 1) {
    return refuse("at least a node and a GPU",
                  fmt::format("{} x {}", settings.nodes, settings.gpus_per_node));
  }
  for (double value : {settings.memory_to_exchange, settings.work_ratio, settings.memory_cap_gb,
                       static_cast<double>(settings.row_elements), settings.bytes_per_element}) {
    if (!is_positive(value)) return refuse("ratios and sizes above 0", value);
  }
  if (!(settings.data_parallel_below_gb >= 0)) {
    return refuse("a threshold from 0", settings.data_parallel_below_gb);
  }
  for (const ShardedTable& table : tables) {
    if (table.rows < 1 || !is_positive(hotness_of(table))) {
      return refuse(
          "rows and a pooling factor above 0",
          fmt::format("{} rows, {} (table {})", table.rows, hotness_of(table), table.name));
    }
  }
  return {};
}

TableChoices choices_of(const ShardedTable& table, const HugectrSettings& settings) {
  TableChoices choices;
  if (is_data_parallel(table, settings)) {
    choices.options.push_back({ShardingType::kDataParallel,
                               ComputeKernel::kDense,
                               0,
                               {{settings.buckets(), ShardDemand{}}}});
    return choices;
  }
  const double bytes = gigabytes_of(table, settings) * kBytesPerGb;
  for (std::int64_t shards = 1; shards <= settings.buckets(); ++shards) {
    ShardDemand demand;
    demand.loads[0] = hotness_of(table) / static_cast<double>(shards) + settings.cost_per_shard();
    demand.hbm_bytes = static_cast<std::int64_t>(std::ceil(bytes / static_cast<double>(shards)));
    choices.options.push_back(
        {ShardingType::kRowSplit, ComputeKernel::kFused, 0, {{shards, demand}}});
  }
  return choices;
}

}  // namespace

double HugectrCost::largest() const {
  double largest = 0;
  for (const Bucket& bucket : buckets) largest = std::max(largest, bucket.hotness + bucket.tables);
  return largest;
}

bool is_data_parallel(const ShardedTable& table, const HugectrSettings& settings) {
  return gigabytes_of(table, settings) < settings.data_parallel_below_gb;
}

Result<HugectrCost> hugectr_cost(std::span<const ShardedTable> tables,
                                 const std::vector<std::vector<std::int64_t>>& matrix,
                                 const HugectrSettings& settings) {
  if (auto good = check(tables, settings); !good) return Unexpected{good.error()};
  if (std::cmp_not_equal(matrix.size(), settings.buckets())) {
    return refuse(fmt::format("{} buckets", settings.buckets()), matrix.size());
  }
  std::vector<std::int64_t> shards(tables.size(), 0);
  for (std::size_t b = 0; b < matrix.size(); ++b) {
    std::vector<char> seen(tables.size(), 0);
    for (std::int64_t table : matrix[b]) {
      if (table < 0 || std::cmp_greater_equal(table, tables.size())) {
        return refuse(fmt::format("tables below {}", tables.size()), table);
      }
      if (std::exchange(seen[static_cast<std::size_t>(table)], 1) != 0) {
        return refuse("a table once per bucket", fmt::format("{} twice in {}", table, b));
      }
      ++shards[static_cast<std::size_t>(table)];
    }
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const bool everywhere = is_data_parallel(tables[t], settings);
    if (shards[t] == 0 || (everywhere && shards[t] != settings.buckets())) {
      return refuse(
          fmt::format("table {} in {}", tables[t].name, everywhere ? "all buckets" : "some bucket"),
          fmt::format("{} shards", shards[t]));
    }
  }
  HugectrCost cost;
  cost.buckets.resize(matrix.size());
  for (std::size_t b = 0; b < matrix.size(); ++b) {
    HugectrCost::Bucket& bucket = cost.buckets[b];
    for (std::int64_t index : matrix[b]) {
      const ShardedTable& table = tables[static_cast<std::size_t>(index)];
      if (is_data_parallel(table, settings)) continue;
      const auto splits = static_cast<double>(shards[static_cast<std::size_t>(index)]);
      bucket.hotness += hotness_of(table) / splits;
      bucket.tables += settings.cost_per_shard();
      bucket.gigabytes += gigabytes_of(table, settings) / splits;
    }
  }
  return cost;
}

Result<PlanSpace> make_hugectr_space(std::span<const ShardedTable> tables,
                                     const HugectrSettings& settings) {
  if (auto good = check(tables, settings); !good) return Unexpected{good.error()};
  PlanSpace space;
  space.world = settings.buckets();
  space.local_world = settings.hierarchical ? 1 : settings.gpus_per_node;
  space.hbm_cap = static_cast<std::int64_t>(settings.memory_cap_gb * kBytesPerGb);
  std::map<std::pair<double, std::int64_t>, std::uint32_t> known;
  for (const ShardedTable& table : tables) {
    const auto [entry, is_new] = known.try_emplace(
        {hotness_of(table), table.rows}, static_cast<std::uint32_t>(space.choices.size()));
    if (is_new) space.choices.push_back(choices_of(table, settings));
    space.choices_of_table.push_back(entry->second);
  }
  return space;
}

std::vector<std::vector<std::int64_t>> shard_matrix(const PlanSpace& space, const FoundPlan& plan) {
  std::vector<std::vector<std::int64_t>> matrix(static_cast<std::size_t>(space.world));
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const auto table = static_cast<std::int64_t>(t);
    if (plan.tables[t].ranks.empty()) {
      for (auto& bucket : matrix) bucket.push_back(table);
    }
    for (std::int32_t rank : plan.tables[t].ranks) {
      matrix[static_cast<std::size_t>(rank)].push_back(table);
    }
  }
  return matrix;
}

}  // namespace perfmodel::sharding
