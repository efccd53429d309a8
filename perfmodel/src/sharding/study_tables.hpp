#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "table_names.hpp"

/// The tables of a study file.
namespace perfmodel::sharding {

/// Values for tables that do not set their own.
struct TableDefaults {
  ShardedTable table;
  bool has_rows = false, has_dim = false, has_features = false;
};
TableDefaults read_defaults(ObjectReader& reader, std::optional<Error>& error);

/// Tables of different names.
class TableList {
 public:
  /// One table, or `count` alike: name_0, name_1, ... Returns the error, if any: "a name of its
  /// own, found ...".
  std::optional<std::string> add(ShardedTable table, std::int64_t count);
  const std::vector<ShardedTable>& tables() const { return tables_; }
  std::vector<ShardedTable> take() { return std::move(tables_); }

 private:
  std::vector<ShardedTable> tables_;
  std::set<std::string> names_;
};

void parse_table(const Json& json, const std::string& pointer, const TableDefaults& defaults,
                 TableList& tables, std::optional<Error>& error);

/// A study of the tables of a list, without machine and dense part. Errors: as
/// read_sharding_study() has them.
Result<ShardingStudy> read_table_csv(const std::filesystem::path& file);

}  // namespace perfmodel::sharding
