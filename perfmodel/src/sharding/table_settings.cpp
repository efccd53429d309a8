#include <algorithm>
#include <limits>

#include "batch_job.hpp"
#include "batch_slopes.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"

/// Settings of single tables that a search chooses: exchange of distinct ids, the share of rows
/// that a cache holds, the type of vectors on the wire, replicated hot rows. Each plan names them,
/// so that search, bound and evaluation price them by one function.
namespace perfmodel::sharding {
namespace {

constexpr int kWireBytes = 2;

int vector_element_bytes(const ShardedTable& table) {
  return table.output_bytes.value_or(table.element_bytes);
}

std::vector<TablePlacement> with_hot_rows(std::vector<TablePlacement> ways,
                                          const ShardedTable& table) {
  constexpr std::int64_t kFewest = 100, kMost = 10'000'000;
  const std::size_t without = ways.size();
  for (std::int64_t rows = kFewest; rows <= std::min(kMost, table.rows / 2); rows *= 10) {
    for (std::size_t i = 0; i < without; ++i) {
      TablePlacement way = ways[i];
      way.settings.hot_rows = rows;
      ways.push_back(std::move(way));
    }
  }
  return ways;
}

}  // namespace

ShardedTable settled(ShardedTable table, const TableSettings& settings) {
  if (settings.deduplicated) table.deduplicated = *settings.deduplicated;
  if (settings.cache_share) table.cache.load_factor = *settings.cache_share;
  if (settings.wire_bytes)
    table.forward_wire_bytes = table.backward_wire_bytes = settings.wire_bytes;
  if (settings.hot_rows) table.hot_rows = std::min(*settings.hot_rows, table.rows - 1);
  return table;
}

TableSettings used_settings(const TablePlacement& placement) {
  if (placement.type == ShardingType::kDataParallel) return {};
  TableSettings settings = placement.settings;
  if (placement.kernel != ComputeKernel::kFusedUvmCaching) settings.cache_share.reset();
  return settings;
}

// If nearly all ids of a batch differ, sorting them gains nothing.
bool BatchModel::saves_ids(std::size_t index) const {
  constexpr double kWorthwhile = 0.9;
  return cache_->once(cache_->saves_ids, like_[index], [&] {
    const ShardedTable& table = study_.tables[index];
    const std::int64_t batch = *study_.batch_per_rank;
    double ids = 0;
    for (const TableFeature& feature : table.features) {
      ids += feature.most_samples(batch) * feature.poolings * feature.pooling_factor;
    }
    return distinct_ids(table, batch) < kWorthwhile * ids;
  });
}

std::vector<TablePlacement> BatchModel::variants(std::size_t index, const TablePlacement& way,
                                                 const SearchedSettings& may) const {
  std::vector<TablePlacement> all = {way};
  if (way.type == ShardingType::kDataParallel || world() == 1) return all;
  const ShardedTable& table = study_.tables[index];
  if (may.hot_rows && table.hot_rows == 0 && table.skew.exponent > 0) {
    all = with_hot_rows(std::move(all), table);
  }
  const auto double_with = [&](auto set) {
    for (std::size_t i = 0, count = all.size(); i < count; ++i) {
      TablePlacement other = all[i];
      set(other.settings);
      all.push_back(std::move(other));
    }
  };
  if (may.deduplication && table.pooled && !table.deduplicated && saves_ids(index)) {
    double_with([](TableSettings& settings) { settings.deduplicated = true; });
  }
  const bool open = !table.forward_wire_bytes && !table.backward_wire_bytes;
  if (may.wire && open && vector_element_bytes(table) > kWireBytes) {
    double_with([](TableSettings& settings) { settings.wire_bytes = kWireBytes; });
  }
  return all;
}

double BatchModel::least_wire_share(std::size_t index) const {
  const ShardedTable& table = study_.tables[index];
  const bool open = !table.forward_wire_bytes && !table.backward_wire_bytes;
  const int own = vector_element_bytes(table);
  return study_.searched.wire && open && own > kWireBytes
             ? static_cast<double>(kWireBytes) / static_cast<double>(own)
             : 1;
}

Result<double> BatchModel::mean_us(std::size_t table, const TablePlacement& way,
                                   const BatchTime& near, const Slopes& slopes) const {
  const double all_reduce = near.critical[BatchPart::kAllReduce] > 0 ? 1 : 0;
  PERFMODEL_TRY(option, this->option(table, way, slopes, all_reduce));
  const auto us = [&](const ShardDemand& demand) { return exposed_us(demand, near); };
  double sum = 0;
  for (const PlacementOption::Run& run : option->shards) {
    sum += static_cast<double>(run.count) * us(run.demand) / static_cast<double>(world());
  }
  const ShardedTable& own = study_.tables[table];
  const TableSettings settings = used_settings(way);
  if (settings.any() || has_load_at_home(own)) {
    sum += us(demand(home_load(table, settings), slopes));
    const auto hot = static_cast<double>(settings.hot_rows.value_or(own.hot_rows) * own.dim);
    sum += all_reduce * slopes.all_reduce * hot * own.element_bytes;
  }
  return sum;
}

Result<BatchModel::SettingsByWay> BatchModel::cheapest_settings(const BatchTime& near) const {
  constexpr double kBetter = 1 - 1e-6;
  const Slopes s = slopes();
  SettingsByWay chosen;
  std::vector<char> seen(study_.tables.size());
  for (std::size_t t = 0; t < study_.tables.size(); ++t) {
    if (seen[like_[t]] != 0) continue;
    seen[like_[t]] = 1;
    for (const TablePlacement& way : ways(study_.tables[t])) {
      const std::vector<TablePlacement> all = variants(t, way, study_.searched);
      if (all.size() < 2 || way.settings.any() || chosen.contains({like_[t], way.type})) continue;
      double least = std::numeric_limits<double>::infinity();
      const TablePlacement* best = nullptr;
      for (const TablePlacement& variant : all) {
        PERFMODEL_TRY(us, mean_us(t, variant, near, s));
        if (*us >= least * kBetter) continue;
        least = *us;
        best = &variant;
      }
      if (best != nullptr && best->settings.any()) chosen[{like_[t], way.type}] = best->settings;
    }
  }
  return chosen;
}

}  // namespace perfmodel::sharding
