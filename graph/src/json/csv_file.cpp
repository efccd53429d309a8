#include "csv_file.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "base/secrets.hpp"
#include "perfmodel/graph/detail/read_options.hpp"

namespace perfmodel {
namespace {

bool is_cell_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

Unexpected unreadable_table(const std::filesystem::path& file, ErrorCode code,
                            std::string message) {
  return Unexpected{Error{.code = code, .message = std::move(message), .file = file}};
}

// What graphs and traces may do by default, without flags to change it: a table of kernels repeats
// itself, but no table of measurements has so many rows.
constexpr std::size_t kInflatedTableFloor = std::size_t{64} << 20,
                      kMostTableBytes = std::size_t{4} << 30;

bool inflates_too_much(std::size_t inflated, gzFile file) {
  const auto used = static_cast<std::size_t>(std::max<z_off_t>(gzoffset(file), 1));
  return inflated > kInflatedTableFloor && inflated / used > ReadLimits{}.inflation;
}

Result<std::string> read_inflated(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> handle(
      std::filesystem::is_directory(file, ignored) ? nullptr : gzopen(file.c_str(), "rb"), gzclose);
  if (!handle)
    return unreadable_table(file, ErrorCode::kIo, "expected a readable table, found none");
  gzbuffer(handle.get(), 1u << 18);
  std::string text;
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (;;) {
    const std::size_t size = text.size();
    text.resize(size + std::max(kPiece, size));  // doubling
    const auto room = static_cast<unsigned>(std::min<std::size_t>(text.size() - size, 1u << 30));
    const int count = gzread(handle.get(), text.data() + size, room);
    text.resize(size + static_cast<std::size_t>(std::max(count, 0)));
    int code = Z_OK;
    const char* reason = gzerror(handle.get(), &code);
    if (code == Z_ERRNO) {
      return unreadable_table(file, ErrorCode::kIo, "expected a readable table, found an error");
    }
    if (code == Z_BUF_ERROR) {
      return unreadable_table(file, ErrorCode::kSyntax,
                              "expected more gzip data, found the end of the file");
    }
    if (count < 0) {
      return unreadable_table(file, ErrorCode::kSyntax,
                              std::string("expected gzip data, found damage (") + reason + ")");
    }
    if (count == 0) return text;
    if (text.size() > kMostTableBytes || inflates_too_much(text.size(), handle.get())) {
      return unreadable_table(
          file, ErrorCode::kSyntax,
          fmt::format("expected a table of at most {} GiB that inflates to at most {} "
                      "times its size, found {} bytes from {}",
                      kMostTableBytes >> 30, ReadLimits{}.inflation, text.size(),
                      gzoffset(handle.get())));
    }
  }
}

std::string shown_cell(std::string_view text) {
  if (text.empty()) return "nothing";
  return "\"" + shown_text(text, 40) + "\"";
}

}  // namespace

Result<CsvFile> CsvFile::open(const std::filesystem::path& file) {
  auto text = read_inflated(file);
  if (!text) return Unexpected{text.error()};
  return of_text(file, std::move(*text));
}

Result<CsvFile> CsvFile::of_text(const std::filesystem::path& file, std::string text) {
  CsvFile csv;
  csv.file_ = file;
  csv.text_ = std::make_unique<std::string>(std::move(text));
  if (csv.text_->starts_with("\xEF\xBB\xBF")) csv.next_ = 3;  // byte order mark
  if (!csv.split_line()) {
    if (csv.error_) return Unexpected{*csv.error_};
    return unreadable_table(file, ErrorCode::kFormat, "expected a header, found an empty file");
  }
  csv.header_line_ = csv.line_;
  for (const Cell& cell : csv.cells_) {
    if (cell.text.empty()) {
      return Unexpected{csv.at(cell.offset, "expected the name of a column, found nothing")};
    }
    if (csv.column(cell.text) >= 0) {
      Error error = csv.at(cell.offset, "expected each column once, found it twice");
      error.json_pointer = cell.text;
      return Unexpected{std::move(error)};
    }
    csv.names_.emplace_back(cell.text);
    csv.name_columns_.push_back(static_cast<int>(cell.offset - csv.line_begin_) + 1);
  }
  return csv;
}

int CsvFile::column(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  return found == names_.end() ? -1 : static_cast<int>(found - names_.begin());
}

bool CsvFile::next() {
  if (error_ || !split_line()) return false;
  if (cells_.size() == names_.size()) return true;
  const bool few = cells_.size() < names_.size();
  error_ = at(few ? cells_.back().offset : cells_[names_.size()].offset,
              "expected " + std::to_string(names_.size()) + " cells, found " +
                  std::to_string(cells_.size()));
  return false;
}

bool CsvFile::split_line() {
  const std::string& text = *text_;
  cells_.clear();
  unescaped_.clear();
  for (;;) {  // to a line that holds something
    while (next_ < text.size() && (is_cell_blank(text[next_]) || text[next_] == '\n')) {
      if (text[next_] == '\n') ++next_line_;
      ++next_;
    }
    if (next_ >= text.size()) return false;
    if (text[next_] != '#') break;
    const std::size_t end = std::min(text.find('\n', next_), text.size());
    if (names_.empty()) head_.push_back(std::string_view(text).substr(next_, end - next_));
    next_ = end;
  }
  // Blanks in front of the first cell belong to the line.
  line_begin_ = next_;
  while (line_begin_ > 0 && is_cell_blank(text[line_begin_ - 1])) --line_begin_;
  line_ = next_line_;
  std::size_t i = next_;
  for (;;) {
    while (i < text.size() && is_cell_blank(text[i])) ++i;
    if (i < text.size() && text[i] == '"') {
      const std::size_t begin = ++i;
      bool doubled = false;
      for (;; ++i) {
        if (i >= text.size()) {
          error_ = at(begin - 1, "expected the end of a quoted cell, found the end of the file");
          return false;
        }
        if (text[i] == '\n') ++next_line_;
        if (text[i] != '"') continue;
        if (i + 1 >= text.size() || text[i + 1] != '"') break;
        doubled = true;
        ++i;
      }
      std::string_view cell(text.data() + begin, i - begin);
      if (doubled) {
        std::string& copy = unescaped_.emplace_back();
        for (std::size_t j = 0; j < cell.size(); ++j) {
          copy += cell[j];
          if (cell[j] == '"') ++j;
        }
        cell = copy;
      }
      cells_.push_back({cell, begin - 1});
      ++i;
      while (i < text.size() && is_cell_blank(text[i])) ++i;
      if (i < text.size() && text[i] != ',' && text[i] != '\n') {
        error_ = at(i, "expected a comma behind a quoted cell, found more text");
        return false;
      }
    } else {
      const std::size_t begin = i;
      while (i < text.size() && text[i] != ',' && text[i] != '\n') ++i;
      std::size_t end = i;
      while (end > begin && is_cell_blank(text[end - 1])) --end;
      cells_.push_back({std::string_view(text.data() + begin, end - begin), begin});
    }
    if (i >= text.size() || text[i] == '\n') break;
    ++i;  // the comma
  }
  if (i < text.size()) {
    ++i;
    ++next_line_;
  }
  next_ = i;
  return true;
}

Error CsvFile::at(std::size_t offset, std::string message) const {
  // In a quoted cell with line breaks the place is that of the row's first line.
  return Error{.code = ErrorCode::kFormat,
               .message = std::move(message),
               .file = file_,
               .line = line_,
               .column = static_cast<int>(offset - line_begin_) + 1};
}

Error CsvFile::at_cell(int column, std::string message) const {
  const auto index = static_cast<std::size_t>(column);
  Error error = at(cells_[index].offset, std::move(message));
  error.json_pointer = names_[index];
  return error;
}

Error CsvFile::expected(int column, std::string_view wanted) const {
  return at_cell(column, "expected " + std::string(wanted) + ", found " + shown_cell(cell(column)));
}

Error CsvFile::at_header(int column, std::string message) const {
  const auto index = static_cast<std::size_t>(column);
  return Error{.code = ErrorCode::kFormat,
               .message = std::move(message),
               .file = file_,
               .json_pointer = names_[index],
               .line = header_line_,
               .column = name_columns_[index]};
}

Error CsvFile::missing_column(std::string_view name, std::string_view why) const {
  return Error{.code = ErrorCode::kFormat,
               .message = "expected this column" + std::string(why) + ", found none",
               .file = file_,
               .json_pointer = std::string(name),
               .line = header_line_,
               .column = 1};
}

}  // namespace perfmodel
