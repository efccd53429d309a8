#include "plan_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/number_text.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"

namespace perfmodel::sharding {
namespace {

constexpr std::pair<ShardingType, std::string_view> kShortTypes[] = {
    {ShardingType::kTableWise, "TW"},         {ShardingType::kColumnWise, "CW"},
    {ShardingType::kRowWise, "RW"},           {ShardingType::kTableRowWise, "TWRW"},
    {ShardingType::kTableColumnWise, "TWCW"}, {ShardingType::kGrid, "grid"},
    {ShardingType::kRowSplit, "split"},       {ShardingType::kHostRowSplit, "host split"},
    {ShardingType::kDataParallel, "DP"}};

}  // namespace

std::string samples_text(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f} M/s", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.1f} k/s", per_second / 1e3);
  return fmt::format("{:.0f} /s", per_second);
}

std::string time_text(double us) {
  if (us >= 1e6) return fmt::format("{:.3g} s", us / 1e6);
  if (us >= 1000) return fmt::format("{:.2f} ms", us / 1000);
  return fmt::format("{:.0f} us", us);
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.2f} TB", bytes / 1e12);
  if (bytes >= 1e9) return fmt::format("{:.1f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.1f} kB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

std::string ranks_text(const TablePlacement& placement, std::int64_t world) {
  const std::vector<std::int64_t>& ranks = placement.ranks;
  if (ranks.empty() || static_cast<std::int64_t>(ranks.size()) == world) return "all";
  const bool in_a_row =
      ranks.size() > 2 && std::adjacent_find(ranks.begin(), ranks.end(), [](auto a, auto b) {
                            return b != a + 1;
                          }) == ranks.end();
  if (in_a_row) return fmt::format("{}-{}", ranks.front(), ranks.back());
  return fmt::format("{}", fmt::join(ranks, " "));
}

std::string settings_of(const TablePlacement& placement) {
  const TableSettings settings = used_settings(placement);
  std::vector<std::string> parts;
  if (settings.deduplicated) {
    parts.emplace_back(*settings.deduplicated ? "distinct ids" : "all ids");
  }
  if (settings.wire_bytes) parts.push_back(fmt::format("{}-byte wire", *settings.wire_bytes));
  if (settings.hot_rows) {
    parts.push_back(fmt::format("{} hot rows", grouped(*settings.hot_rows)));
  }
  if (settings.cache_share) {
    parts.push_back(fmt::format("cache {:g} %", 100 * *settings.cache_share));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string chosen_settings(std::span<const TablePlacement> placements) {
  constexpr std::pair<const char*, bool (*)(const TableSettings&)> kKinds[] = {
      {"distinct ids", [](const TableSettings& s) { return s.deduplicated.has_value(); }},
      {"2-byte wire", [](const TableSettings& s) { return s.wire_bytes.has_value(); }},
      {"hot rows", [](const TableSettings& s) { return s.hot_rows.has_value(); }},
      {"another share of rows in the cache",
       [](const TableSettings& s) { return s.cache_share.has_value(); }}};
  std::vector<std::string> parts;
  for (const auto& [name, has] : kKinds) {
    const auto tables = std::ranges::count_if(
        placements,
        [&, is_set = has](const TablePlacement& one) { return is_set(used_settings(one)); });
    if (tables > 0) parts.push_back(fmt::format("{} for {}", name, tables));
  }
  if (parts.empty()) return "";
  return fmt::format("{} of {}", fmt::join(parts, ", "), counted(placements.size(), "table"));
}

std::string types_text(std::span<const TablePlacement> placements, bool is_short) {
  std::string text;
  for (const auto& [type, name] : kShortTypes) {
    const auto count = std::ranges::count(placements, type, &TablePlacement::type);
    if (count == 0) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", count, is_short ? name : to_string(type));
  }
  return text;
}

std::string plan_words(std::span<const TablePlacement> placements) {
  std::string text = types_text(placements, false);
  const auto cached =
      std::ranges::count(placements, ComputeKernel::kFusedUvmCaching, &TablePlacement::kernel);
  if (cached > 0) text += fmt::format(", {} cached", cached);
  if (const std::string chosen = chosen_settings(placements); !chosen.empty())
    text += "; " + chosen;
  return text;
}

}  // namespace perfmodel::sharding
