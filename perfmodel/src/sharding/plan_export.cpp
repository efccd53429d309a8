#include "plan_export.hpp"

#include <fmt/format.h>

#include "json/csv_file.hpp"
#include "placed_shards.hpp"
#include "refuse_table.hpp"

namespace perfmodel::sharding {
Result<std::string> plan_csv(std::span<const ShardedTable> tables,
                             std::span<const TablePlacement> placements, std::int64_t world,
                             std::int64_t local_world) {
  PERFMODEL_TRY_TO(check_placements(tables, placements));
  std::string text = "table,type,kernel,rank,rows,columns,row_offset,column_offset\n";
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TablePlacement& placement = placements[t];
    PERFMODEL_TRY(shards, placed_shards(tables[t], placement, world, local_world));
    const std::string head = fmt::format("{},{},{}", csv_cell(tables[t].name),
                                         to_string(placement.type), to_string(placement.kernel));
    const bool classes = is_row_split(placement.type);
    for (const auto& [rank, offset, size] : *shards) {
      if (size.rows == 0) continue;
      text += fmt::format("{},{},{},{},{},{}\n", head, rank, size.rows, size.columns,
                          classes ? std::string() : fmt::format("{}", offset.rows), offset.columns);
    }
  }
  return text;
}

}  // namespace perfmodel::sharding
