#pragma once

#include <fmt/format.h>

#include <string_view>

#include "perfmodel/result.hpp"

// Templates, so that headers of tables and of their plans can come after this one.
namespace perfmodel::sharding {

/// "table NAME: expected X, found Y", for impossible values of a ShardedTable.
Unexpected refuse_table(const auto& table, std::string_view expected, const auto& found) {
  return decline(fmt::format("table {}: expected {}, found {}", table.name, expected, found));
}

/// A placement for each table, else kImpossible.
Result<void> check_placements(const auto& tables, const auto& placements) {
  if (placements.size() == tables.size()) return {};
  return decline(
      fmt::format("expected placements of {} tables, found {}", tables.size(), placements.size()));
}

}  // namespace perfmodel::sharding
