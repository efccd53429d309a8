#include "study_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "index_statistics.hpp"
#include "json/csv_file.hpp"

namespace perfmodel::sharding {
namespace {

constexpr double kAnyNumber = std::numeric_limits<double>::infinity();
constexpr const char* kNotNegative = "a number of at least 0";
constexpr std::size_t kMostTables = 1'000'000;

std::optional<int> read_dtype(ObjectReader& reader, const char* key) {
  return read_name(reader, key, "an element type", dtype_bytes, dtype_names());
}

void read_law(ObjectReader& reader, RowSkew& skew) {
  skew = {};
  skew.exponent = reader.number_below("exponent", kAnyNumber, kNotNegative);
  if (reader.has("shift")) skew.shift = reader.number_below("shift", kAnyNumber, kNotNegative);
}

// A mean, or counts of bags with 0, 1, 2, ... ids.
void read_pooling_factor(ObjectReader& reader, TableFeature& feature) {
  if (!reader.has("pooling_histogram")) {
    feature.pooling_factor = reader.positive("pooling");
    return;
  }
  const Json* list = reader.array("pooling_histogram");
  std::vector<double> bags;
  for (std::size_t i = 0; list && i < list->size(); ++i) {
    bags.push_back((*list)[i].is_number() ? (*list)[i].get<double>() : -1);
  }
  const auto mean = mean_pooling(bags);
  if (mean) {
    feature.pooling_factor = *mean;
  } else if (list) {
    reader.reject("pooling_histogram",
                  "counts of bags with 0, 1, 2, ... ids, some of them with any");
  }
}

// Reads one size for every rank, or a list with a size for each.
void read_batch(ObjectReader& reader, const Json& json, TableFeature& feature) {
  if (!reader.has("batch")) return;
  if (!json["batch"].is_array()) {
    feature.batch = reader.whole_number("batch", 1);
    return;
  }
  feature.rank_batches = reader.whole_numbers("batch", 0);
  const double samples =
      std::accumulate(feature.rank_batches.begin(), feature.rank_batches.end(), 0.0);
  if (samples < 1) {
    reader.reject("batch", "samples of each rank, at least one in all");
    return;
  }
  const auto ranks = static_cast<double>(feature.rank_batches.size());
  feature.batch = std::max<std::int64_t>(1, std::llround(samples / ranks));
}

TableFeature parse_feature(const Json& json, const std::string& pointer,
                           std::optional<Error>& error) {
  ObjectReader reader(json, pointer, error);
  TableFeature feature;
  read_pooling_factor(reader, feature);
  if (reader.has("poolings")) feature.poolings = reader.positive("poolings");
  read_batch(reader, json, feature);
  reader.finish();
  return feature;
}

void read_table_cache(ObjectReader& reader, TableCache& cache) {
  cache = {};
  if (reader.has("load_factor")) {
    cache.load_factor = reader.positive("load_factor");
    cache.given = true;
    if (cache.load_factor > 1) reader.reject("load_factor", "a share above 0, at most 1");
  }
  if (reader.has("prefetch")) cache.prefetches = reader.boolean("prefetch");
  const bool has_distances = reader.has("distances");
  if (has_distances || reader.has("expected_lookups")) {
    CacheStatistics statistics;
    statistics.expected_lookups = reader.positive("expected_lookups");
    const Json* list = has_distances ? reader.array("distances") : nullptr;
    for (std::size_t i = 0; list && i < list->size(); ++i) {
      const Json& count = (*list)[i];
      const double number = count.is_number() ? count.get<double>() : -1;
      if (!(number >= 0)) {
        reader.fail_at(fmt::format("{}/{}", reader.pointer("distances"), i), kNotNegative,
                       found(count));
      }
      statistics.distances.push_back(number);
    }
    cache.statistics = std::move(statistics);
  }
}

void read_rules(ObjectReader& reader, PlacementRules& rules) {
  if (reader.has("types")) {
    rules.types = read_names<ShardingType>(reader, "types", "a sharding type", sharding_type);
    if (rules.types.empty()) reader.reject("types", "at least one name");
  }
  if (reader.has("kernels")) {
    rules.kernels =
        read_names<ComputeKernel>(reader, "kernels", "a compute kernel", compute_kernel);
    if (rules.kernels.empty()) reader.reject("kernels", "at least one name");
  }
  if (reader.has("keep_with")) rules.keep_with = reader.string("keep_with");
  if (reader.has("forbid_ranks")) rules.forbidden_ranks = reader.whole_numbers("forbid_ranks", 0);
}

void read_wire(ObjectReader& wire, ShardedTable& table) {
  if (wire.has("forward")) table.forward_wire_bytes = read_dtype(wire, "forward");
  if (wire.has("backward")) table.backward_wire_bytes = read_dtype(wire, "backward");
}

/// Returns whether anything was said.
bool read_features(ObjectReader& reader, ShardedTable& table, std::optional<Error>& error) {
  const bool has_pooling = reader.has("pooling") || reader.has("pooling_histogram");
  const bool has_features = reader.has("features");
  if (has_pooling && has_features) reader.reject("pooling", "pooling or features, not both");
  if (has_pooling) {
    table.features = {{}};
    read_pooling_factor(reader, table.features.front());
  }
  if (has_features) {
    const Json* list = reader.array("features");
    if (list && list->empty()) reader.reject("features", "at least one feature");
    table.features.clear();
    for (std::size_t i = 0; list && i < list->size(); ++i) {
      table.features.push_back(
          parse_feature((*list)[i], fmt::format("{}/{}", reader.pointer("features"), i), error));
    }
  }
  return has_pooling || has_features;
}

/// Everything but name, rows, dim and features.
void read_properties(ObjectReader& reader, ShardedTable& table, std::optional<Error>& error) {
  if (reader.has("dtype")) table.element_bytes = read_dtype(reader, "dtype").value_or(4);
  if (reader.has("output_dtype")) table.output_bytes = read_dtype(reader, "output_dtype");
  if (reader.has("optimizer")) {
    table.optimizer =
        read_name(reader, "optimizer", "an optimizer", table_optimizer, names_of<TableOptimizer>())
            .value_or(TableOptimizer::kNone);
  }
  if (reader.has("weighted")) table.weighted = reader.boolean("weighted");
  if (reader.has("hot_rows")) table.hot_rows = reader.whole_number("hot_rows", 0);
  if (reader.has("deduplicate")) table.deduplicated = reader.boolean("deduplicate");
  if (reader.has("pooled")) table.pooled = reader.boolean("pooled");
  if (reader.has("min_columns")) table.least_columns = reader.whole_number("min_columns", 1);
  const auto part = [&](const char* key, const auto& read) { read_part(reader, key, error, read); };
  part("zipf", [&](ObjectReader& json) { read_law(json, table.skew); });
  part("cache", [&](ObjectReader& json) { read_table_cache(json, table.cache); });
  part("wire", [&](ObjectReader& json) { read_wire(json, table); });
  read_rules(reader, table.rules);
}

}  // namespace

TableDefaults read_defaults(ObjectReader& reader, std::optional<Error>& error) {
  TableDefaults defaults;
  defaults.has_rows = reader.has("rows");
  defaults.has_dim = reader.has("dim");
  if (defaults.has_rows) defaults.table.rows = reader.whole_number("rows", 1);
  if (defaults.has_dim) defaults.table.dim = reader.whole_number("dim", 1);
  defaults.has_features = read_features(reader, defaults.table, error);
  read_properties(reader, defaults.table, error);
  return defaults;
}

std::optional<std::string> TableList::add(ShardedTable table, std::int64_t count) {
  if (tables_.size() + static_cast<std::size_t>(count) > kMostTables) {
    return fmt::format("at most {} tables, found {}", kMostTables,
                       tables_.size() + static_cast<std::size_t>(count));
  }
  const std::string name = table.name;
  for (std::int64_t i = 0; i < count; ++i) {
    if (count > 1) table.name = fmt::format("{}_{}", name, i);
    if (!names_.insert(table.name).second) {
      return fmt::format("a name of its own, found \"{}\" again", table.name);
    }
    tables_.push_back(table);
  }
  return std::nullopt;
}

void parse_table(const Json& json, const std::string& pointer, const TableDefaults& defaults,
                 TableList& tables, std::optional<Error>& error) {
  ObjectReader reader(json, pointer, error);
  ShardedTable table = defaults.table;
  table.name = reader.string("name");
  if (table.name.empty()) reader.reject("name", "a name");
  if (reader.has("rows") || !defaults.has_rows) table.rows = reader.whole_number("rows", 1);
  if (reader.has("dim") || !defaults.has_dim) table.dim = reader.whole_number("dim", 1);
  const bool has_features = read_features(reader, table, error);
  if (!has_features && !defaults.has_features) reader.any("pooling");  // missing
  const std::int64_t count = reader.has("count") ? reader.whole_number("count", 1) : 1;
  read_properties(reader, table, error);
  reader.finish();
  if (error) return;
  if (const auto problem = tables.add(std::move(table), count)) {
    error = Error{.code = ErrorCode::kFormat,
                  .message = "expected " + *problem,
                  .json_pointer = reader.pointer("name")};
  }
}

namespace {

constexpr std::string_view kColumns[] = {
    "table", "rows", "dim", "pooling", "dtype", "optimizer", "zipf_exponent", "weighted", "count"};
/// Names of the columns in other lists.
using ColumnAlias = std::pair<std::string_view, std::string_view>;
constexpr ColumnAlias kColumnAliases[] = {
    {"name", "table"},        {"num_embeddings", "rows"},    {"hash_size", "rows"},
    {"embedding_dim", "dim"}, {"pooling_factor", "pooling"}, {"hotness", "pooling"},
    {"data_type", "dtype"},   {"zipf", "zipf_exponent"}};

class TableCsv {
 public:
  explicit TableCsv(CsvFile& csv) : csv_(csv), error_(wrong_column()) {}

  /// Reads the next row; false: there is none, or something is wrong.
  bool next() {
    if (error_ || !csv_.next()) return false;
    read_row();
    return !error_;
  }

  Result<ShardingStudy> study() {
    if (!error_) error_ = csv_.error();
    if (!error_ && tables_.tables().empty()) {
      error_ = Error{.code = ErrorCode::kFormat,
                     .message = "expected tables, found only a header",
                     .file = csv_.path()};
    }
    if (error_) return Unexpected{*error_};
    ShardingStudy study;
    study.tables = tables_.take();
    return study;
  }

 private:
  std::optional<Error> wrong_column() const {
    for (std::size_t i = 0; i < csv_.columns().size(); ++i) {
      const std::string& name = csv_.columns()[i];
      if (std::ranges::find(kColumns, name) != std::end(kColumns)) continue;
      const auto alias = std::ranges::find(kColumnAliases, name, &ColumnAlias::first);
      if (alias != std::end(kColumnAliases)) {
        if (csv_.column(alias->second) < 0) continue;
        return csv_.at_header(
            static_cast<int>(i),
            fmt::format("expected one column {}, found {} beside it", alias->second, name));
      }
      return csv_.at_header(static_cast<int>(i),
                            fmt::format("expected {}, found \"{}\"",
                                        wanted_name("a known column", name, kColumns), name));
    }
    for (std::string_view name : {"table", "rows", "dim", "pooling"}) {
      if (column_of(name) < 0) return csv_.missing_column(name, "");
    }
    return std::nullopt;
  }

  // By its own name or another's for it; -1: there is none.
  int column_of(std::string_view name) const {
    for (const auto& [alias, own] : kColumnAliases) {
      if (own != name) continue;
      if (const int column = csv_.column(alias); column >= 0) return column;
    }
    return csv_.column(name);
  }

  void expect(int column, std::string_view wanted) {
    if (!error_) error_ = csv_.expected(column, wanted);
  }

  std::int64_t count(std::string_view name) {
    const int column = column_of(name);
    const auto value = parse_count(csv_.cell(column));
    if (!value) expect(column, "a whole number of at least 1");
    return value.value_or(1);
  }

  template <class ByName, class Names>
  auto named(std::string_view column_name, std::string_view what, ByName by_name,
             const Names& known) {
    const int column = column_of(column_name);
    const std::string_view cell = csv_.cell(column);
    auto value = by_name(cell);
    if (!value && !cell.empty()) expect(column, wanted_name(what, cell, known));
    return value;  // none: an empty cell, or no such column
  }

  void read_row() {
    ShardedTable table;
    const int name = column_of("table"), pooling = column_of("pooling");
    table.name = csv_.cell(name);
    if (table.name.empty()) expect(name, "a name");
    table.rows = count("rows");
    table.dim = count("dim");
    const auto factor = parse_double(csv_.cell(pooling));
    if (!factor || !(*factor > 0) || !std::isfinite(*factor)) expect(pooling, "a number above 0");
    table.features = {{.pooling_factor = factor.value_or(1)}};
    table.element_bytes = named("dtype", "an element type", dtype_bytes, dtype_names()).value_or(4);
    table.optimizer =
        named("optimizer", "an optimizer", table_optimizer, names_of<TableOptimizer>())
            .value_or(table.optimizer);
    read_skew(table);
    read_weighted(table);
    const bool has_count = !csv_.cell(column_of("count")).empty();
    const std::int64_t tables = has_count ? count("count") : 1;
    if (error_) return;
    if (const auto problem = tables_.add(std::move(table), tables)) {
      error_ = csv_.at_cell(name, "expected " + *problem);
    }
  }

  void read_skew(ShardedTable& table) {
    const int column = column_of("zipf_exponent");
    if (csv_.cell(column).empty()) return;
    const auto exponent = parse_double(csv_.cell(column));
    if (!exponent || !(*exponent >= 0) || !std::isfinite(*exponent)) expect(column, kNotNegative);
    table.skew.exponent = exponent.value_or(0);
  }

  void read_weighted(ShardedTable& table) {
    const int column = column_of("weighted");
    const std::string_view cell = csv_.cell(column);
    table.weighted = cell == "1" || cell == "true";
    if (!cell.empty() && !table.weighted && cell != "0" && cell != "false") {
      expect(column, "0, 1, false or true");
    }
  }

  CsvFile& csv_;
  TableList tables_;
  std::optional<Error> error_;
};

}  // namespace

Result<ShardingStudy> read_table_csv(const std::filesystem::path& file) {
  return CsvFile::open(file).and_then([](CsvFile csv) {
    TableCsv tables(csv);
    while (tables.next()) continue;
    return tables.study();
  });
}

}  // namespace perfmodel::sharding
