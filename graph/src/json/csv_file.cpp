#include "csv_file.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/secrets.hpp"
#include "perfmodel/graph/detail/read_options.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Most characters are beyond the first limit.
bool is_cell_blank(char c) { return c <= ' ' && (c == ' ' || c == '\t' || c == '\r'); }
bool ends_cell(char c) { return c <= ',' && (c == ',' || c == '\n'); }

// A text ends in a 0, which neither is a blank nor ends a cell, so that the text's end is looked
// for only there.
const char* after_blanks(const char* at) {
  while (is_cell_blank(*at)) ++at;
  return at;
}
const char* end_of_cell(const char* at, const char* end) {
  while (*at > ',' || (!ends_cell(*at) && at != end)) ++at;
  return at;
}

std::size_t bytes_between(const char* from, const char* to) { return to - from; }

Unexpected unreadable_table(const std::filesystem::path& file, ErrorCode code,
                            std::string message) {
  return fail(code, std::move(message), file);
}

// Tables get the default limits of graphs and traces, and no flag changes them: a table of kernels
// repeats itself, but no table of measurements has so many rows.
constexpr std::size_t kInflatedTableFloor = std::size_t{64} << 20,
                      kMostTableBytes = std::size_t{4} << 30;

// Each name of a header is compared with all before it.
constexpr std::size_t kMostColumns = 4096;

/// The text of a table, inflated where it is gzip.
class InflatedFile {
 public:
  explicit InflatedFile(const std::filesystem::path& file) : file_(file) {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) return;
    handle_.reset(gzopen(file.c_str(), "rb"));
    if (handle_) gzbuffer(handle_.get(), 1u << 18);
  }

  /// Adds up to `room` bytes to the text; false at the end.
  Result<bool> add_to(std::string& text, std::size_t room) {
    if (!handle_) return unreadable(ErrorCode::kIo, "expected a readable table, found none");
    const std::size_t size = text.size();
    room = std::min<std::size_t>(room, 1u << 30);
    text.resize(size + room);
    const int count = gzread(handle_.get(), text.data() + size, static_cast<unsigned>(room));
    text.resize(size + static_cast<std::size_t>(std::max(count, 0)));
    int code = Z_OK;
    const char* reason = gzerror(handle_.get(), &code);
    if (code == Z_ERRNO) {
      return unreadable(ErrorCode::kIo, "expected a readable table, found an error");
    }
    if (code == Z_BUF_ERROR) {
      return unreadable(ErrorCode::kSyntax, "expected more gzip data, found the end of the file");
    }
    if (count < 0) {
      return unreadable(ErrorCode::kSyntax,
                        std::string("expected gzip data, found damage (") + reason + ")");
    }
    bytes_ += static_cast<std::size_t>(count);
    if (inflates_too_much()) return too_much();
    return count > 0;
  }

  Unexpected too_much() const {
    return unreadable(ErrorCode::kSyntax,
                      fmt::format("expected a table of at most {} GiB that inflates to at most {} "
                                  "times its size, found {} bytes from {}",
                                  kMostTableBytes >> 30, ReadLimits{}.inflation, bytes_,
                                  gzoffset(handle_.get())));
  }

 private:
  Unexpected unreadable(ErrorCode code, std::string message) const {
    return unreadable_table(file_, code, std::move(message));
  }
  bool inflates_too_much() const {
    const auto used = static_cast<std::size_t>(std::max<z_off_t>(gzoffset(handle_.get()), 1));
    return bytes_ > kInflatedTableFloor && bytes_ / used > ReadLimits{}.inflation;
  }

  std::filesystem::path file_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> handle_{nullptr, gzclose};
  std::size_t bytes_ = 0;
};

Result<std::string> read_inflated(const std::filesystem::path& file) {
  // A file beyond the limit is refused before it is read: inflating it only makes it larger.
  std::error_code no_size;
  const std::uintmax_t on_disk = std::filesystem::file_size(file, no_size);
  if (!no_size && on_disk > kMostTableBytes) {
    return unreadable_table(file, ErrorCode::kSyntax,
                            fmt::format("expected a table of at most {} GiB, found {} bytes",
                                        kMostTableBytes >> 30, on_disk));
  }
  InflatedFile source(file);
  std::string text;
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (;;) {
    const auto more = source.add_to(text, std::max(kPiece, text.size()));  // doubling
    if (!more) return Unexpected{more.error()};
    if (!*more) return text;
    if (text.size() > kMostTableBytes) return source.too_much();
  }
}

std::string shown_cell(std::string_view text) {
  if (text.empty()) return "nothing";
  return "\"" + shown_text(text, 40) + "\"";
}

/// One line of a table, and where the next one begins.
struct Line {
  std::size_t end = 0;
  int breaks = 0;  ///< more than one in a row with quoted line breaks
  bool is_row = false;
};

/// Finds the end of a row with quotes, which may hold line breaks. If the row is malformed,
/// `CsvFile` reports it later.
std::optional<Line> quoted_row(std::string_view text, std::size_t at, bool is_end) {
  Line line{.is_row = true};
  bool begins_cell = true, is_quoted = false;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line.breaks;
    if (is_quoted) {
      if (c != '"') continue;
      if (i + 1 == text.size() && !is_end) return std::nullopt;  // doubled?
      if (i + 1 < text.size() && text[i + 1] == '"') {
        ++i;
      } else {
        is_quoted = false;
      }
    } else if (c == '\n') {
      line.end = i + 1;
      return line;
    } else if (c == '"' && begins_cell) {
      is_quoted = true;
      begins_cell = false;
    } else {
      begins_cell = c == ',' || (begins_cell && is_cell_blank(c));
    }
  }
  if (!is_end) return std::nullopt;
  line.end = text.size();
  return line;
}

/// The line that begins at `at`; nothing if the text ends before it does. `is_end`: of the file.
std::optional<Line> line_at(std::string_view text, std::size_t at, bool is_end) {
  std::size_t end = text.find('\n', at);
  const bool has_break = end != text.npos;
  if (!has_break) {
    if (!is_end) return std::nullopt;
    end = text.size();
  }
  Line line{.end = end + (has_break ? 1 : 0), .breaks = has_break ? 1 : 0};
  std::size_t first = at;
  while (first < end && is_cell_blank(text[first])) ++first;
  if (first == end || text[first] == '#') return line;
  if (std::memchr(text.data() + first, '"', end - first)) return quoted_row(text, at, is_end);
  line.is_row = true;
  return line;
}

}  // namespace

struct CsvBlocks::State {
  explicit State(const std::filesystem::path& the_file) : file(the_file), source(the_file) {}

  /// Takes lines into `text` up to so many rows; false if there is none left.
  Result<bool> take(std::size_t most_rows, std::string& text) {
    std::size_t at = begin + begin_of_first_line;
    begin_of_first_line = 0;
    for (std::size_t taken = 0; taken < most_rows;) {
      if (at == held.size() && is_end) break;
      const auto line = at < held.size() ? line_at(held, at, is_end) : std::nullopt;
      if (line) {
        at = line->end;
        next_line += line->breaks;
        taken += line->is_row;
        rows += line->is_row;
        continue;
      }
      if (held.size() - at > kMostRowBytes) {
        return Unexpected{
            Error{.code = ErrorCode::kFormat,
                  .message = fmt::format("expected a row of at most {} MiB, found a longer one",
                                         kMostRowBytes >> 20),
                  .file = file,
                  .line = next_line,
                  .column = 1}};
      }
      held.erase(0, begin);
      at -= std::exchange(begin, 0);
      const auto more = source.add_to(held, std::max(kPiece, held.size() - at));  // doubling
      if (!more) return Unexpected{more.error()};
      is_end = !*more;
      if (held.size() > kMostTableBytes) return source.too_much();
    }
    text.assign(held, begin, at - begin);
    return std::exchange(begin, at) < at;
  }

  static constexpr std::size_t kPiece = std::size_t{1} << 18;
  static constexpr std::size_t kMostRowBytes = std::size_t{64} << 20;

  std::filesystem::path file;
  InflatedFile source;
  std::string header;  // with the text before it
  std::string held;    // read, and not yet taken from `begin` on
  std::size_t begin = 0;
  std::size_t begin_of_first_line = 0;  // after a byte order mark
  bool is_end = false;
  int next_line = 1;
  std::uint64_t rows = 0;
};

CsvBlocks::CsvBlocks(std::unique_ptr<State> state) : state_(std::move(state)) {}
CsvBlocks::CsvBlocks(CsvBlocks&&) noexcept = default;
CsvBlocks& CsvBlocks::operator=(CsvBlocks&&) noexcept = default;
CsvBlocks::~CsvBlocks() = default;

Result<CsvBlocks> CsvBlocks::open(const std::filesystem::path& file) {
  auto state = std::make_unique<State>(file);
  while (state->held.size() < kByteOrderMark.size() && !state->is_end) {
    PERFMODEL_TRY(more, state->source.add_to(state->held, State::kPiece));
    state->is_end = !*more;
  }
  if (state->held.starts_with(kByteOrderMark)) state->begin_of_first_line = kByteOrderMark.size();
  PERFMODEL_TRY(taken, state->take(1, state->header));
  state->rows = 0;
  return CsvBlocks(std::move(state));
}

Result<CsvFile> CsvBlocks::header() const { return CsvFile::of_text(state_->file, state_->header); }

Result<bool> CsvBlocks::next(std::size_t most_rows, CsvBlock& block) {
  block.rows_before = state_->rows;
  block.first_line = state_->next_line;
  return state_->take(most_rows, block.text);
}

Result<CsvFile> CsvFile::open(const std::filesystem::path& file) {
  PERFMODEL_TRY(text, read_inflated(file));
  return of_text(file, std::move(*text));
}

Result<CsvFile> CsvFile::of_text(const std::filesystem::path& file, std::string text) {
  CsvFile csv;
  csv.file_ = file;
  csv.text_ = std::make_unique<std::string>(std::move(text));
  if (csv.text_->starts_with(kByteOrderMark)) csv.next_ = kByteOrderMark.size();
  if (!csv.split_line()) {
    if (csv.error_) return Unexpected{*csv.error_};
    return unreadable_table(file, ErrorCode::kFormat, "expected a header, found an empty file");
  }
  csv.header_line_ = csv.line_;
  if (csv.cells_.size() > kMostColumns) {
    return Unexpected{csv.at(
        csv.cells_[kMostColumns].offset,
        fmt::format("expected at most {} columns, found {}", kMostColumns, csv.cells_.size()))};
  }
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

void CsvFile::go_on(CsvBlock& block) {
  text_->swap(block.text);
  next_ = line_begin_ = 0;
  next_line_ = line_ = block.first_line;
  head_.clear();
  cells_.clear();
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
  if (!unescaped_.empty()) unescaped_.clear();
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
  const char* const data = text.data();
  const char* at = data + next_;
  for (;;) {
    at = after_blanks(at);
    if (*at == '"') {
      if (!(at = quoted_cell(at))) return false;
    } else {
      const char* const end = end_of_cell(at, data + text.size());
      const char* last = end;
      while (last > at && is_cell_blank(last[-1])) --last;
      cells_.push_back({{at, bytes_between(at, last)}, bytes_between(data, at)});
      at = end;
    }
    if (*at != ',') break;
    ++at;
  }
  next_ = bytes_between(data, at);
  if (next_ < text.size()) {
    ++next_;
    ++next_line_;
  }
  return true;
}

const char* CsvFile::quoted_cell(const char* quote) {
  const char* const data = text_->data();
  const char* const end = data + text_->size();
  const char* const begin = quote + 1;
  const char* i = begin;
  bool doubled = false;
  for (;; ++i) {
    if (i == end) {
      error_ = at(bytes_between(data, quote),
                  "expected the end of a quoted cell, found the end of the file");
      return nullptr;
    }
    if (*i == '\n') ++next_line_;
    if (*i != '"') continue;
    if (i[1] != '"') break;
    doubled = true;
    ++i;
  }
  std::string_view cell(begin, bytes_between(begin, i));
  if (doubled) {
    std::string& copy = unescaped_.emplace_back();
    for (std::size_t j = 0; j < cell.size(); ++j) {
      copy += cell[j];
      if (cell[j] == '"') ++j;
    }
    cell = copy;
  }
  cells_.push_back({cell, bytes_between(data, quote)});
  i = after_blanks(i + 1);
  if (i != end && !ends_cell(*i)) {
    error_ = at(bytes_between(data, i), "expected a comma after a quoted cell, found more text");
    return nullptr;
  }
  return i;
}

Error CsvFile::at(std::size_t offset, std::string message) const {
  // In a quoted cell with line breaks the error names the row's first line.
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

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  return csv_quoted(text);
}
std::string csv_quoted(std::string_view text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? std::string("\"\"") : std::string(1, c);
  return cell + "\"";
}

}  // namespace perfmodel
