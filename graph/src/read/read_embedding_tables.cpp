#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/secrets.hpp"
#include "json/csv_file.hpp"
#include "perfmodel/graph/build_recommenders.hpp"

namespace perfmodel {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostListBytes = std::size_t{64} << 20;  // a million tables
constexpr std::size_t kTablePieceBytes = std::size_t{1} << 16;

struct Position {
  int line = 1, column = 1;
};

Position position_of(std::string_view text, std::size_t offset) {
  Position at;
  for (const char c : text.substr(0, offset)) {
    ++at.column;
    if (c == '\n') at = {at.line + 1, 1};
  }
  return at;
}

Unexpected error_at(const std::filesystem::path& file, Position at, std::string pointer,
                    std::string message, ErrorCode code = ErrorCode::kFormat) {
  return Unexpected{Error{.code = code,
                          .message = std::move(message),
                          .file = file,
                          .json_pointer = std::move(pointer),
                          .line = at.line,
                          .column = at.column}};
}

bool is_count(double value) {
  return value >= 1 && value == std::floor(value) && value <= 9007199254740992.0;  // 2^53
}

bool is_rank(double value) { return value == -1 || value == 0 || is_count(value); }

// ------------------------------------------------------------------------------------------- CSV

constexpr std::string_view kColumns[] = {"table", "rows", "dim", "pooling", "rank"};

Unexpected unknown_column(const CsvFile& csv, int column) {
  Error error = csv.at_header(
      column, fmt::format("expected a column table, rows, dim, pooling or rank, found \"{}\"",
                          shown_text(csv.columns()[column])));
  error.json_pointer.clear();
  return Unexpected{std::move(error)};
}

Result<void> check_columns(const CsvFile& csv) {
  for (std::size_t i = 0; i < csv.columns().size(); ++i) {
    if (std::ranges::find(kColumns, csv.columns()[i]) == std::end(kColumns)) {
      return unknown_column(csv, static_cast<int>(i));
    }
  }
  for (const std::string_view name : {"rows", "dim", "pooling"}) {
    if (csv.column(name) < 0) return Unexpected{csv.missing_column(name, "")};
  }
  return {};
}

Result<EmbeddingTable> csv_table(const CsvFile& csv) {
  EmbeddingTable table;
  for (const auto& [name, target] : {std::pair{"rows", &table.num_rows}, {"dim", &table.dim}}) {
    const int column = csv.column(name);
    const auto value = parse_count(csv.cell(column));
    if (!value) return Unexpected{csv.expected(column, "a positive integer")};
    *target = *value;
  }
  const int pooling = csv.column("pooling"), rank = csv.column("rank");
  const auto factor = parse_double(csv.cell(pooling));
  if (!factor || !(*factor > 0) || !std::isfinite(*factor)) {
    return Unexpected{csv.expected(pooling, "a positive number")};
  }
  table.pooling_factor = *factor;
  if (rank >= 0) {
    const auto place = parse_double(csv.cell(rank));
    if (!place || !is_rank(*place)) return Unexpected{csv.expected(rank, "a rank or -1")};
    table.rank = static_cast<std::int64_t>(*place);
  }
  return table;
}

Result<std::vector<EmbeddingTable>> read_csv(const std::filesystem::path& file, std::string text) {
  PERFMODEL_TRY(csv, CsvFile::of_text(file, std::move(text)));
  if (auto good = check_columns(*csv); !good) return Unexpected{good.error()};
  std::vector<EmbeddingTable> tables;
  while (csv->next()) {
    PERFMODEL_TRY(table, csv_table(*csv));
    tables.push_back(*table);
  }
  if (csv->error()) return Unexpected{*csv->error()};
  if (tables.empty()) return error_at(file, {}, "", "expected tables, found only a header");
  return tables;
}

// ------------------------------------------------------------------------------------------ JSON

// A value for a message; of a list or object only that it is one.
std::string shown(const Json& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "a list";
  return shown_text(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<EmbeddingTable> json_table(const std::filesystem::path& file, const Json& entry,
                                  std::size_t index) {
  const auto problem = [&](std::string_view key, std::string message) {
    return error_at(file, {0, 0},
                    fmt::format("/{}{}{}", index, key.empty() ? "" : "/", shown_text(key)),
                    std::move(message));
  };
  if (!entry.is_object()) {
    return problem("", fmt::format("expected an object, found {}", shown(entry)));
  }
  for (const auto& [key, value] : entry.items()) {
    if (key != "table" && key != "rows" && key != "dim" && key != "pooling" && key != "rank") {
      return problem(key,
                     "expected one of the keys table, rows, dim, pooling, rank, found another one");
    }
  }
  for (const char* key : {"rows", "dim", "pooling"}) {
    if (!entry.contains(key))
      return problem("", fmt::format("expected key \"{}\", found none", key));
  }
  EmbeddingTable table;
  for (const auto& [key, target] : {std::pair{"rows", &table.num_rows}, {"dim", &table.dim}}) {
    const Json& value = entry[key];
    if (!value.is_number() || !is_count(value.get<double>())) {
      return problem(key, fmt::format("expected a positive integer, found {}", shown(value)));
    }
    *target = static_cast<std::int64_t>(value.get<double>());
  }
  const Json& pooling = entry["pooling"];
  if (!pooling.is_number() || !(pooling.get<double>() > 0)) {
    return problem("pooling", fmt::format("expected a positive number, found {}", shown(pooling)));
  }
  table.pooling_factor = pooling.get<double>();
  if (const auto rank = entry.find("rank"); rank != entry.end()) {
    if (!rank->is_number() || !is_rank(rank->get<double>())) {
      return problem("rank", fmt::format("expected a rank or -1, found {}", shown(*rank)));
    }
    table.rank = static_cast<std::int64_t>(rank->get<double>());
  }
  return table;
}

Result<std::vector<EmbeddingTable>> read_json(const std::filesystem::path& file,
                                              const std::string& text) {
  Json document;
  try {
    document = Json::parse(text);
  } catch (const Json::parse_error& error) {
    return error_at(file, position_of(text, error.byte > 0 ? error.byte - 1 : 0), "",
                    "expected JSON, found a syntax error", ErrorCode::kSyntax);
  } catch (const Json::exception&) {  // a number that no double holds
    return error_at(file, {0, 0}, "", "expected JSON, found a number out of range",
                    ErrorCode::kSyntax);
  }
  if (!document.is_array() || document.empty()) {
    return error_at(file, {0, 0}, "",
                    fmt::format("expected a list of tables, found {}",
                                document.is_array() ? "an empty one" : document.type_name()));
  }
  std::vector<EmbeddingTable> tables;
  for (std::size_t i = 0; i < document.size(); ++i) {
    PERFMODEL_TRY(table, json_table(file, document[i], i));
    tables.push_back(*table);
  }
  return tables;
}

}  // namespace

Result<std::vector<EmbeddingTable>> read_embedding_tables(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file)) {
    return error_at(file, {0, 0}, "", "expected a readable table, found none", ErrorCode::kIo);
  }
  std::string text;
  for (std::string piece(kTablePieceBytes, '\0'); in && text.size() <= kMostListBytes;) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece, 0, static_cast<std::size_t>(in.gcount()));
  }
  if (text.size() > kMostListBytes) {
    return error_at(
        file, {0, 0}, "",
        fmt::format("expected a list of tables of at most {} bytes, found more", kMostListBytes));
  }
  if (in.bad()) return error_at(file, {0, 0}, "", "cannot read", ErrorCode::kIo);
  if (file.extension() == ".json") return read_json(file, text);
  if (file.extension() == ".csv") return read_csv(file, std::move(text));
  return error_at(file, {0, 0}, "",
                  fmt::format("expected a name that ends in .json or .csv, found \"{}\"",
                              file.extension().string()));
}

}  // namespace perfmodel
