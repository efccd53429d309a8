#include "plan_export.hpp"

#include <fmt/format.h>

#include "perfmodel/detail/output_file.hpp"
#include "placed_shards.hpp"

namespace perfmodel::sharding {
namespace {

/// As RFC 4180 has it.
std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

Result<std::string> plan_csv(std::span<const ShardedTable> tables,
                             std::span<const TablePlacement> placements, std::int64_t world,
                             std::int64_t local_world) {
  if (placements.size() != tables.size()) {
    return fail(ErrorCode::kImpossible, fmt::format("expected placements of {} tables, found {}",
                                                    tables.size(), placements.size()));
  }
  std::string text = "table,type,kernel,rank,rows,columns,row_offset,column_offset\n";
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TablePlacement& placement = placements[t];
    const auto shards = placed_shards(tables[t], placement, world, local_world);
    if (!shards) return Unexpected{shards.error()};
    const std::string head = fmt::format("{},{},{}", cell(tables[t].name),
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

Result<void> write_plan_csv(const std::filesystem::path& file, std::span<const ShardedTable> tables,
                            std::span<const TablePlacement> placements, std::int64_t world,
                            std::int64_t local_world) {
  const auto text = plan_csv(tables, placements, world, local_world);
  if (!text) return Unexpected{text.error()};
  return write_file(file, *text);
}

}  // namespace perfmodel::sharding
