#include "memory_shortfall.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/contains.hpp"
#include "optimizer_state.hpp"

namespace perfmodel::sharding {
namespace {

constexpr std::size_t kFixes = 3;

std::string size_text(double bytes) {
  constexpr double kGB = 1e9, kMB = 1e6;
  return bytes >= kGB ? fmt::format("{:.1f} GB", bytes / kGB)
                      : fmt::format("{:.1f} MB", bytes / kMB);
}

// Changes for some tables that need `needed` bytes on ranks that have `available`.
std::string fixes(std::span<const ShardedTable> tables, double needed, double available,
                  const PlanSpace& space) {
  double wide = 0, rowwise = 0, host = 0;
  bool by_rows = true;
  for (const ShardedTable& table : tables) {
    const double elements = static_cast<double>(table.rows) * static_cast<double>(table.dim);
    if (table.element_bytes > 2) wide += elements * (table.element_bytes - 2);
    const double state = static_cast<double>(table.rows) * kStateBytes *
                         state_numbers(table.optimizer, static_cast<double>(table.dim));
    if (table.optimizer == TableOptimizer::kAdagrad || table.optimizer == TableOptimizer::kAdam) {
      rowwise += state - 4.0 * static_cast<double>(table.rows);
    }
    if (!contains(table.rules.kernels, ComputeKernel::kFusedUvmCaching)) {
      host += (elements * table.element_bytes) * (1 - table.cache.load_factor) + state;
    }
    by_rows = by_rows &&
              (table.rules.types.empty() || contains(table.rules.types, ShardingType::kRowWise));
  }
  std::vector<std::string> list;
  if (!by_rows) list.push_back("allow row_wise");
  if (wide > 0) list.push_back(fmt::format("float16 tables (saves {})", size_text(wide)));
  if (rowwise > 0) list.push_back(fmt::format("rowwise_adagrad (saves {})", size_text(rowwise)));
  if (host > 0) {
    list.push_back(fmt::format("fused_uvm_caching (moves {} to host memory)", size_text(host)));
  }
  if (needed > available && available > 0) {
    const double hosts = std::ceil(needed / available * static_cast<double>(space.world) /
                                   static_cast<double>(space.local_world));
    list.push_back(fmt::format("{:.0f} GPUs", hosts * static_cast<double>(space.local_world)));
  }
  if (list.size() < kFixes) list.push_back("GPUs with more memory");
  if (list.size() < kFixes) list.push_back("a smaller batch (buffers)");
  if (list.size() > kFixes) list.erase(list.begin() + kFixes - 1, list.end() - 1);
  return fmt::format("{}", fmt::join(list, "; "));
}

}  // namespace

std::string describe_shortfall(std::span<const ShardedTable> tables, const PlanSpace& space) {
  const Shortfall shortfall = find_shortfall(space);
  if (!shortfall.tables.empty()) {
    const Shortfall::Table& worst = *std::max_element(
        shortfall.tables.begin(), shortfall.tables.end(),
        [](const auto& a, const auto& b) { return a.shard_hbm_bytes < b.shard_hbm_bytes; });
    const double shard = static_cast<double>(worst.shard_hbm_bytes);
    const double cap = static_cast<double>(space.hbm_cap);
    const std::size_t table = std::min<std::size_t>(worst.table, tables.size() - 1);
    return fmt::format(
        "table {}: expected a shard of at most {} (what a GPU has for tables), found {}: {} short. "
        "What would help: {}",
        tables[table].name, size_text(cap), size_text(shard), size_text(shard - cap),
        fixes(tables.subspan(table, 1), shard, cap, space));
  }
  const double needed = static_cast<double>(shortfall.least_hbm_bytes);
  const double available = static_cast<double>(shortfall.hbm_bytes);
  if (needed <= available) return "";
  return fmt::format(
      "expected tables of at most {} on {} GPUs, found {} with states and buffers: {} short. What "
      "would help: {}",
      size_text(available), space.world, size_text(needed), size_text(needed - available),
      fixes(tables, needed, available, space));
}

}  // namespace perfmodel::sharding
