#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/decimal_number.hpp"
#include "perfmodel/result.hpp"

/// Strict reading of tables: `.csv` or `.csv.gz` as RFC 4180 has them, with a header. Blank lines
/// and lines that begin with `#` are skipped. Errors name file, line, position and column.
namespace perfmodel {

/// Whole rows of a table, in order, with the blank lines and comments between them.
struct CsvBlock {
  std::string text;
  std::uint64_t rows_before = 0;  ///< in the blocks before
  int first_line = 1;
};

class CsvFile {
 public:
  /// Reads the whole file and its header.
  static Result<CsvFile> open(const std::filesystem::path& file);
  /// The same of a file's text that somebody has read and inflated.
  static Result<CsvFile> of_text(const std::filesystem::path& file, std::string text);

  const std::filesystem::path& path() const { return file_; }

  /// The lines in front of the header that begin with `#`.
  const std::vector<std::string_view>& head() const { return head_; }

  /// Position of a column, -1 if there is none.
  int column(std::string_view name) const;

  const std::vector<std::string>& columns() const { return names_; }

  /// The rows of this block come next, with their lines, in the place of those that are left and of
  /// the lines of `head`. The block gets the text that it replaces, so that no memory is asked for.
  void go_on(CsvBlock& block);

  /// Goes to the next row. False at the end and at the first error.
  bool next();
  const std::optional<Error>& error() const { return error_; }
  int line() const { return line_; }

  /// A cell of this row without the blanks round it; empty for column -1.
  std::string_view cell(int column) const {
    return column < 0 ? std::string_view() : cells_[static_cast<std::size_t>(column)].text;
  }

  /// "expected <wanted>, found <the cell>", at its place.
  Error expected(int column, std::string_view wanted) const;
  /// Any message at a cell's place.
  Error at_cell(int column, std::string message) const;
  /// Any message at the name of a column.
  Error at_header(int column, std::string message) const;
  /// A column that some row needs and the header lacks.
  Error missing_column(std::string_view name, std::string_view why) const;

 private:
  struct Cell {
    std::string_view text;
    std::size_t offset = 0;
  };

  bool split_line();
  /// Adds the cell that begins with this quote. Returns the cell's end, nothing after an error.
  const char* quoted_cell(const char* quote);
  Error at(std::size_t offset, std::string message) const;

  std::filesystem::path file_;
  std::unique_ptr<std::string> text_;  // cells point into it, so it must not move
  std::size_t next_ = 0, line_begin_ = 0;
  int next_line_ = 1, line_ = 0, header_line_ = 0;
  std::vector<std::string_view> head_;
  std::vector<std::string> names_;
  std::vector<int> name_columns_;  // where the names begin, from 1
  std::vector<Cell> cells_;
  std::deque<std::string> unescaped_;
  std::optional<Error> error_;
};

/// A table whose rows come in blocks, so that a long one need not lie in memory as a whole: one
/// reader cuts the text at the ends of rows, any number of others read its blocks
/// (`CsvFile::go_on`) side by side. It gives the same rows and errors, at the same places, as
/// `CsvFile::open`.
class CsvBlocks {
 public:
  /// Reads up to the end of the header.
  static Result<CsvBlocks> open(const std::filesystem::path& file);

  CsvBlocks(CsvBlocks&&) noexcept;
  CsvBlocks& operator=(CsvBlocks&&) noexcept;
  ~CsvBlocks();

  /// Returns the header, before any row. Errors: as `CsvFile::open` has them about the header.
  Result<CsvFile> header() const;

  /// The next rows, at most so many. False at the end, where the block is empty. Errors: a file
  /// that cannot be read on, damaged gzip data, a row of more than 64 MiB. Blocks that were asked
  /// for before are whole.
  Result<bool> next(std::size_t most_rows, CsvBlock& block);

 private:
  struct State;
  explicit CsvBlocks(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A cell as RFC 4180 has it: in quotes if it holds a comma, a quote or a line break.
std::string csv_cell(std::string_view text);
std::string csv_quoted(std::string_view text);  ///< always in quotes

/// The whole text as a number, else nothing. "nan" and "inf" are numbers here.
inline std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  return read_decimal(text, value) ? std::optional(value) : std::nullopt;
}

/// A whole number from 1 to 2^53, else nothing.
inline std::optional<std::int64_t> parse_count(std::string_view text) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 53;
  std::int64_t value = 0;
  if (read_decimal(text, value)) {
    if (value < 1 || value > kLargest) return std::nullopt;
    return value;
  }
  const auto number = parse_double(text);  // "1e6", "64.0"
  if (!number || !(*number >= 1) || *number > static_cast<double>(kLargest) ||
      *number != std::floor(*number)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*number);
}

}  // namespace perfmodel
