#pragma once

#include <fmt/format.h>

#include <string_view>

#include "perfmodel/sharding/detail/embedding_shards.hpp"

namespace perfmodel::sharding {

/// "table NAME: expected X, found Y", for impossible values.
Unexpected refuse_table(const ShardedTable& table, std::string_view expected, const auto& found) {
  return fail(ErrorCode::kImpossible,
              fmt::format("table {}: expected {}, found {}", table.name, expected, found));
}

}  // namespace perfmodel::sharding
