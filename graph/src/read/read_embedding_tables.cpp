#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/secrets.hpp"
#include "perfmodel/graph/build_recommenders.hpp"

namespace perfmodel {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // a million tables
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

struct Cell {
  std::string_view text;
  int column = 1;  // of its first character
};

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<Cell> split(std::string_view line) {
  std::vector<Cell> cells;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = line.find(',', begin);
    const std::string_view cell = trim(line.substr(begin, comma - begin));
    const auto column = cell.empty() ? begin : static_cast<std::size_t>(cell.data() - line.data());
    cells.push_back({cell, static_cast<int>(column) + 1});
    if (comma == std::string_view::npos) return cells;
    begin = comma + 1;
  }
}

class CsvReader {
 public:
  CsvReader(const std::filesystem::path& file, std::string_view text) : file_(file), text_(text) {}

  Result<std::vector<EmbeddingTable>> read() {
    std::vector<EmbeddingTable> tables;
    bool has_header = false;
    while (next_line()) {
      if (trim(line_).empty()) continue;
      const std::vector<Cell> cells = split(line_);
      if (!has_header) {
        if (auto good = header(cells); !good) return Unexpected{good.error()};
        has_header = true;
        continue;
      }
      auto table = row(cells);
      if (!table) return Unexpected{table.error()};
      tables.push_back(*table);
    }
    if (!has_header) {
      return error_at(file_, {}, "", "expected a header table,rows,dim,pooling, found nothing");
    }
    if (tables.empty()) return error_at(file_, {}, "", "expected tables, found only a header");
    return tables;
  }

 private:
  bool next_line() {
    if (at_ >= text_.size()) return false;
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    line_ = text_.substr(at_, end - at_);
    at_ = end + 1;
    ++line_number_;
    return true;
  }

  Unexpected cell_error(const Cell& cell, std::string_view column, std::string message) const {
    return error_at(file_, {line_number_, cell.column}, std::string(column), std::move(message));
  }

  Result<void> header(const std::vector<Cell>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      std::optional<std::size_t>* slot = cells[i].text == "rows"      ? &rows_
                                         : cells[i].text == "dim"     ? &dim_
                                         : cells[i].text == "pooling" ? &pooling_
                                         : cells[i].text == "table"   ? &name_
                                         : cells[i].text == "rank"    ? &rank_
                                                                      : nullptr;
      if (slot == nullptr) {
        return cell_error(
            cells[i], "",
            fmt::format("expected a column table, rows, dim, pooling or rank, found \"{}\"",
                        shown_text(cells[i].text)));
      }
      if (slot->has_value()) {
        return cell_error(cells[i], cells[i].text, "expected each column once, found it twice");
      }
      *slot = i;
    }
    for (const auto& [slot, name] :
         {std::pair{rows_, "rows"}, {dim_, "dim"}, {pooling_, "pooling"}}) {
      if (!slot) {
        return error_at(file_, {line_number_, 1}, name, "expected this column, found none");
      }
    }
    columns_ = cells.size();
    return {};
  }

  Result<EmbeddingTable> row(const std::vector<Cell>& cells) const {
    if (cells.size() != columns_) {
      return cell_error(cells.back(), "",
                        fmt::format("expected {} cells, found {}", columns_, cells.size()));
    }
    EmbeddingTable table;
    for (const auto& [slot, name, target] :
         {std::tuple{*rows_, "rows", &table.num_rows}, {*dim_, "dim", &table.dim}}) {
      const auto value = number(cells[slot]);
      if (!value || !is_count(*value)) {
        return cell_error(
            cells[slot], name,
            fmt::format("expected a positive integer, found \"{}\"", shown_text(cells[slot].text)));
      }
      *target = static_cast<std::int64_t>(*value);
    }
    const Cell& pooling = cells[*pooling_];
    const auto value = number(pooling);
    if (!value || !(*value > 0) || !std::isfinite(*value)) {
      return cell_error(
          pooling, "pooling",
          fmt::format("expected a positive number, found \"{}\"", shown_text(pooling.text)));
    }
    table.pooling_factor = *value;
    if (rank_) {
      const Cell& rank = cells[*rank_];
      const auto place = number(rank);
      if (!place || !is_rank(*place)) {
        return cell_error(
            rank, "rank",
            fmt::format("expected a rank or -1, found \"{}\"", shown_text(rank.text)));
      }
      table.rank = static_cast<std::int64_t>(*place);
    }
    return table;
  }

  static std::optional<double> number(const Cell& cell) {
    double value = 0;
    const char* end = cell.text.data() + cell.text.size();
    const auto [stop, error] = std::from_chars(cell.text.data(), end, value);
    if (error != std::errc() || stop != end || cell.text.empty()) return std::nullopt;
    return value;
  }

  const std::filesystem::path& file_;
  std::string_view text_, line_;
  std::size_t at_ = 0, columns_ = 0;
  int line_number_ = 0;
  std::optional<std::size_t> rows_, dim_, pooling_, name_, rank_;
};

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
    auto table = json_table(file, document[i], i);
    if (!table) return Unexpected{table.error()};
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
  for (std::string piece(kTablePieceBytes, '\0'); in && text.size() <= kMostBytes;) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    text.append(piece, 0, static_cast<std::size_t>(in.gcount()));
  }
  if (text.size() > kMostBytes) {
    return error_at(
        file, {0, 0}, "",
        fmt::format("expected a list of tables of at most {} bytes, found more", kMostBytes));
  }
  if (in.bad()) return error_at(file, {0, 0}, "", "cannot read", ErrorCode::kIo);
  if (file.extension() == ".json") return read_json(file, text);
  if (file.extension() == ".csv") return CsvReader(file, text).read();
  return error_at(file, {0, 0}, "",
                  fmt::format("expected a name that ends in .json or .csv, found \"{}\"",
                              file.extension().string()));
}

}  // namespace perfmodel
