#pragma once

#include <functional>
#include <span>

#include "perfmodel/sharding/detail/table_space.hpp"

namespace perfmodel::sharding {

/// The options of one table; with `together` only table-wise ones, which keep it whole.
using OptionsOfTable =
    std::function<Result<std::vector<PlacementOption>>(std::uint32_t table, bool together)>;

/// Fills the choices of a space whose machine is set. Tables that share `keep_with` become one,
/// with the sum of their loads; tables that are alike share their choices; options that exceed a
/// rank's memory are left out, unless a table has no others.
///
/// Errors of `options_of`; (kImpossible) tables kept together that have no kernel in common or must
/// not stay whole.
Result<void> fill_table_space(std::span<const ShardedTable> tables,
                              const OptionsOfTable& options_of, TableSpace& space);

}  // namespace perfmodel::sharding
