#include "json_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/secrets.hpp"
#include "container_end.hpp"
#include "file_kind.hpp"
#include "line_count.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kStreamPieceBytes = std::size_t{1} << 17;
constexpr std::size_t kMaxMemberBytes = std::size_t{1} << 20;

}  // namespace

std::string JsonStream::shown(int c) {
  return c == kEndOfText ? "the end of the file" : shown_character(static_cast<char>(c));
}

std::string_view json_kind(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \n\t\r");
  if (start == std::string_view::npos) return "nothing";
  switch (text[start]) {
    case '{': return "an object";
    case '[': return "an array";
    case '"': return "a string";
    case 't':
    case 'f': return "a boolean";
    case 'n': return "null";
    default: return "a number";
  }
}

Result<JsonStream> JsonStream::open(const std::filesystem::path& file, std::string_view array_key,
                                    const ReadOptions& options) {
  PERFMODEL_TRY(source, ByteSource::open(file, options));
  return JsonStream(std::move(*source), file, array_key, options);
}

JsonStream JsonStream::over(std::string_view text, const std::filesystem::path& name,
                            std::string_view array_key, const ReadOptions& options) {
  return {ByteSource::over(text), name, array_key, options};
}

JsonStream::JsonStream(ByteSource source, const std::filesystem::path& file,
                       std::string_view array_key, const ReadOptions& options)
    : source_(std::move(source)),
      limits_(options.limits),
      salvage_(options.salvage),
      file_(file),
      array_key_(array_key) {
  buffer_.grow(kStreamPieceBytes + kPadding + 1);
  begin_ = end_ = 1;  // room for the frame before a piece at the very front
}

Error JsonStream::error_at(std::size_t position, std::string pointer, std::string message) const {
  position = std::min(position, end_);
  const char* text = buffer_.data();
  // The frame of a piece may hide a line break.
  const bool hidden =
      framed_ && saved_begin_ == '\n' && piece_begin_ > 0 && piece_begin_ < position;
  const std::uint64_t newlines = count_lines(text + 1, text + position) + (hidden ? 1 : 0);
  const void* last = nullptr;
  for (std::size_t i = position; i > 1; --i) {
    if (text[i - 1] == '\n' || (hidden && i - 1 == piece_begin_)) {
      last = text + i - 1;
      break;
    }
  }
  const std::uint64_t offset = consumed_offset_ + position - 1;
  const std::uint64_t line_start =
      last ? consumed_offset_ + static_cast<std::uint64_t>(static_cast<const char*>(last) - text)
           : last_line_offset_;
  return Error{.code = ErrorCode::kSyntax,
               .message = std::move(message),
               .file = file_,
               .json_pointer = std::move(pointer),
               .line = static_cast<int>(consumed_lines_ + newlines + 1),
               .column = static_cast<int>(offset - line_start + 1)};
}

Result<bool> JsonStream::refill() {
  if (begin_ > 1) {
    const char* text = buffer_.data();
    const std::uint64_t newlines = count_lines(text + 1, text + begin_);
    if (newlines > 0) {
      std::size_t last = begin_ - 1;
      while (text[last] != '\n') --last;
      last_line_offset_ = consumed_offset_ + last;  // buffer position 1 is consumed_offset_
    }
    consumed_lines_ += newlines;
    consumed_offset_ += begin_ - 1;
    std::memmove(buffer_.data() + 1, buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_ - 1;
    begin_ = 1;
  }
  if (end_ + kPadding + kStreamPieceBytes / 4 > buffer_.size()) buffer_.grow(2 * buffer_.size());
  const std::size_t room = buffer_.size() - kPadding - end_;
  const auto count = source_.read(buffer_.data() + end_, room);
  if (!count) {
    Error error = error_at(end_, "", count.error().message);
    error.code = count.error().code;
    if (!salvage_) return Unexpected{std::move(error)};
    log_.damage = fmt::format("after line {}, column {} (byte {}) nothing could be read: {}",
                              error.line, error.column, offset_of(end_), error.message);
    return false;
  }
  end_ += *count;
  std::memset(buffer_.data() + end_, ' ', kPadding);
  return *count > 0;
}

Result<int> JsonStream::peek() {
  for (;;) {
    while (begin_ < end_ && is_blank(buffer_[begin_])) ++begin_;
    if (begin_ < end_) return static_cast<unsigned char>(buffer_[begin_]);
    PERFMODEL_TRY(more, refill());
    if (!*more) return kEndOfText;
  }
}

std::string_view JsonStream::elements() const {
  if (lenient_piece_) return std::string_view(scratch_).substr(0, scratch_.size() - kPadding);
  return {buffer_.data() + piece_begin_, piece_end_ - piece_begin_ + 1};
}

std::string_view JsonStream::element_text(std::size_t i) const {
  return {buffer_.data() + element_starts_[i], element_ends_[i] - element_starts_[i]};
}

Error JsonStream::element_error(std::size_t i, std::string_view tail, std::string message) const {
  Error error =
      error_at(element_starts_[i], fmt::format("{}/{}{}", pointer_prefix_, first_index_ + i, tail),
               std::move(message));
  error.code = ErrorCode::kFormat;
  return error;
}

Error JsonStream::syntax_error(std::string_view parser_message) const {
  for (std::size_t i = 0; i < element_count(); ++i) {
    const JsonScan scan = scan_json(element_text(i), JsonManner::kStrict, limits_);
    const bool goes_on = scan.complete() && scan.past < element_text(i).size();
    if (scan.complete() && !goes_on) continue;
    return error_at(element_starts_[i] + (goes_on ? scan.past : scan.defect),
                    fmt::format("{}/{}{}", pointer_prefix_, first_index_ + i, scan.pointer),
                    goes_on ? fmt::format("expected ',' or ']', found {}",
                                          shown_character(element_text(i)[scan.past]))
                            : scan.message);
  }
  return error_at(element_starts_.empty() ? begin_ : element_starts_.front(),
                  fmt::format("{}/{}", pointer_prefix_, first_index_),
                  fmt::format("expected valid JSON, found: {}", parser_message));
}

Error JsonStream::limit_error(std::size_t position, std::string_view expected,
                              std::string_view limit) const {
  Error error = error_at(
      position, fmt::format("{}/{}", pointer_prefix_, next_index_ + element_starts_.size()),
      fmt::format("expected {}, found more (limit {}; --limit {}=N raises it)", expected, limit,
                  limit));
  error.code = ErrorCode::kFormat;
  return error;
}

void JsonStream::restore_frame() {
  lenient_piece_ = false;
  if (!framed_) return;
  buffer_[piece_begin_] = saved_begin_;
  buffer_[piece_end_] = saved_end_;
  framed_ = false;
}

Result<JsonStream::Item> JsonStream::next() {
  restore_frame();
  if (phase_ == Phase::kStart) {
    if (auto begun = begin_document(); !begun) {
      if (!log_.damage.empty() && bytes_read() == 0) begun.error().message = log_.damage;
      if (!salvage_ || bytes_read() == 0) return Unexpected{begun.error()};
      return start_lenient(begun.error());
    }
  }
  if (phase_ == Phase::kObject) {
    auto item = next_member();
    if (item || !salvage_) return item;
    if (array_seen_ && begin_ >= end_) {  // broken off after the array
      cut_off_ = true;
      phase_ = Phase::kDone;
      return Item::kEnd;
    }
    return start_lenient(item.error());
  }
  if (phase_ == Phase::kArray) return lenient_ ? next_lenient() : next_elements();
  return Item::kEnd;
}

Result<void> JsonStream::begin_document() {
  PERFMODEL_TRY(first, peek());
  if (end_ - begin_ >= 3 && std::memcmp(buffer_.data() + begin_, "\xEF\xBB\xBF", 3) == 0) {
    begin_ += 3;  // byte order mark
    first = peek();
    if (!first) return Unexpected{first.error()};
  }
  if (*first == kEndOfText) {
    return Unexpected{error_at(begin_, "",
                               bytes_read() == 0 ? "expected JSON, found an empty file"
                                                 : "expected JSON, found only blanks")};
  }
  const bool brackets = *first == '{' || *first == '[';
  if (!brackets || buffer_[1] == '\n') {  // which may be a tag of protobuf
    const bool printable = *first >= ' ' && *first < 0x7F;
    std::string found = file_kind({buffer_.data() + 1, end_ - 1}, file_);
    if (found.empty() && !brackets) {
      found = looks_like_chakra({buffer_.data() + 1, end_ - 1})
                  ? "a Chakra trace (`replay` reads it as FILE.et)"
              : printable ? shown(*first)
                          : "binary data";
    }
    if (!found.empty()) {
      return Unexpected{error_at(begin_, "", "expected a JSON object or array, found " + found)};
    }
  }
  if (salvage_ && *first == '{') {
    const JsonScan scan = scan_element(kMostOpenBytes);
    if (scan.complete() &&
        looks_like_element(scan.keys, array_key_ == "nodes")) {  // the front of the file is lost
      return Unexpected{error_at(begin_, "", "expected the front of the file, found an element")};
    }
  }
  bare_ = *first == '[';
  ++begin_;
  phase_ = bare_ ? Phase::kArray : Phase::kObject;
  array_seen_ = bare_;
  pointer_prefix_ = bare_ ? "" : "/" + array_key_;
  return {};
}

Result<std::string> JsonStream::read_string() {
  std::string text;
  ++begin_;  // the quote
  for (;;) {
    if (begin_ >= end_) {
      PERFMODEL_TRY(more, refill());
      if (!*more)
        return Unexpected{error_at(begin_, "", "expected '\"', found the end of the file")};
    }
    const char c = buffer_[begin_++];
    if (c == '"') return text;
    if (text.size() > limits_.string_bytes) {
      return Unexpected{error_at(
          begin_, "",
          fmt::format("expected a key of at most {} bytes, found a longer one (limit string-bytes; "
                      "--limit string-bytes=N raises it)",
                      limits_.string_bytes))};
    }
    text += c;
    if (c == '\\') {
      if (begin_ >= end_) {
        PERFMODEL_TRY(more, refill());
        if (!*more) continue;  // told above
      }
      text += buffer_[begin_++];
    }
  }
}

std::string JsonStream::member_pointer() const {
  return fmt::format("/{}", shown_text(member_key_));
}

Result<void> JsonStream::read_value(std::string& text) {
  text.clear();
  PERFMODEL_TRY(first, peek());
  const auto append = [&](char c) {
    if (text.size() <= kMaxMemberBytes) text += c;
  };
  std::int64_t depth = 0;
  bool in_string = false, escaped = false;
  for (;;) {
    if (begin_ >= end_) {
      PERFMODEL_TRY(more, refill());
      if (!*more) {
        return Unexpected{
            error_at(begin_, member_pointer(), "expected a value, found the end of the file")};
      }
    }
    const char c = buffer_[begin_];
    if (!in_string && depth == 0 && (c == ',' || c == '}' || c == ']' || is_blank(c))) break;
    append(c);
    ++begin_;
    if (in_string) {
      if (escaped) {
        escaped = false;
      } else if (c == '\\') {
        escaped = true;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  if (text.size() > kMaxMemberBytes) text.clear();
  return {};
}

Result<JsonStream::Item> JsonStream::next_member() {
  PERFMODEL_TRY(c, peek());
  if (*c == '}') {
    ++begin_;
    return finish();
  }
  if (!first_member_) {
    if (*c != ',') {
      return Unexpected{
          error_at(begin_, "", fmt::format("expected ',' or '}}', found {}", shown(*c)))};
    }
    ++begin_;
    c = peek();
    if (!c) return Unexpected{c.error()};
  }
  first_member_ = false;
  if (*c != '"') {
    return Unexpected{error_at(begin_, "", fmt::format("expected a key, found {}", shown(*c)))};
  }
  PERFMODEL_TRY(key, read_string());
  member_key_ = std::move(*key);
  c = peek();
  if (!c) return Unexpected{c.error()};
  if (*c != ':') return Unexpected{error_at(begin_, member_pointer(), "expected ':'")};
  ++begin_;
  c = peek();
  if (!c) return Unexpected{c.error()};
  if (member_key_ == array_key_) {
    if (auto begins = expect_array(*c); !begins) return Unexpected{begins.error()};
    ++begin_;
    array_seen_ = true;
    phase_ = Phase::kArray;
    return next_elements();
  }
  member_place_ = error_at(begin_, member_pointer(), "");
  if (salvage_ && !array_seen_) return salvage_member();
  if (auto read = read_value(member_text_); !read) {
    // The end of the file may be far after the mistake.
    const JsonScan scan = scan_json(member_text_, JsonManner::kLenient, limits_);
    const bool broken = scan.status == JsonScan::Status::kBroken;
    return Unexpected{broken ? member_error(scan) : read.error()};
  }
  return Item::kMember;
}

// A bracket in the head that is never closed must not swallow the array, so the value is looked at
// before it is taken.
Result<JsonStream::Item> JsonStream::salvage_member() {
  const JsonScan scan = scan_element(kMostOpenBytes);
  bool swallows = false;
  if (scan.complete()) {
    std::size_t behind = scan.past;
    const auto next = look_behind(behind);
    swallows = is_document(scan.keys) && next && *next == kEndOfText;
  } else if (buffer_[begin_] == '{' || buffer_[begin_] == '[') {
    const char* const text = buffer_.data() + begin_;
    const char* const end = buffer_.data() + end_;
    const char* const past = find_container_end(text, end, limits_.nesting);
    const std::string_view value(text, static_cast<std::size_t>((past ? past : end) - text));
    swallows = past == nullptr || value.find('"' + array_key_ + '"') != std::string_view::npos;
  }
  if (swallows) {
    member_place_.message = "expected a value that ends in front of the " + array_key_;
    return Unexpected{member_place_};
  }
  if (!scan.complete()) {
    if (auto read = read_value(member_text_); !read) return Unexpected{read.error()};
    return Item::kMember;
  }
  member_text_.assign(buffer_.data() + begin_, std::min(scan.past, kMaxMemberBytes + 1));
  if (member_text_.size() > kMaxMemberBytes) member_text_.clear();
  begin_ += scan.past;
  return Item::kMember;
}

Result<void> JsonStream::expect_array(int first) const {
  Error error = error_at(begin_, "/" + array_key_, "");
  error.code = ErrorCode::kFormat;
  const char c = static_cast<char>(first);
  if (first == '[' && !array_seen_) return {};
  error.message =
      first == '[' ? "expected one such array, found a second one"
                   : fmt::format("expected an array, found {}", json_kind(std::string_view(&c, 1)));
  return Unexpected{std::move(error)};
}

Error JsonStream::member_error(const JsonScan& scan) const {
  Error error = member_place_;
  error.json_pointer += scan.pointer;
  error.message = scan.message;
  return error;
}

Result<void> JsonStream::check_member(JsonManner manner) const {
  if (member_text_.empty()) return {};
  const JsonScan scan = scan_json(member_text_ + ',', manner, limits_);
  if (!scan.complete()) return Unexpected{member_error(scan)};
  if (scan.past >= member_text_.size()) return {};
  Error error = member_place_;
  error.message = fmt::format("expected ',' or '}}' after the value, found {}",
                              shown_character(member_text_[scan.past]));
  return Unexpected{std::move(error)};
}

JsonStream::Found JsonStream::find_element_end(std::size_t begin) {
  const char* text = buffer_.data();
  Found found;
  if (text[begin] == '{' || text[begin] == '[') {
    const char* past =
        find_container_end(text + begin, text + end_, limits_.nesting, &found.too_deep);
    if (past) found.past = static_cast<std::size_t>(past - text);
    scanned_ += (past ? found.past : end_) - begin;
    return found;
  }
  // A scalar where an object should be: the caller will complain with its place.
  bool in_string = false;
  for (std::size_t i = begin; i < end_; ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    if (!in_string && (text[i] == ',' || text[i] == ']' || text[i] == '}')) {
      found.past = i;
      break;
    }
  }
  scanned_ += (found.past > 0 ? found.past : end_) - begin;
  return found;
}

// Checks a complete element: the limits that are left and the syntax between elements.
Result<void> JsonStream::check_element(std::size_t begin, std::size_t past) {
  if (past == begin) {
    return Unexpected{
        error_at(begin, fmt::format("{}/{}", pointer_prefix_, next_index_ + element_starts_.size()),
                 "expected a value, found " + shown_character(buffer_[begin]))};
  }
  if (past - begin > limits_.element_bytes) {
    return Unexpected{
        limit_error(begin, fmt::format("an element of at most {} bytes", limits_.element_bytes),
                    "element-bytes")};
  }
  if (next_index_ + element_starts_.size() >= limits_.elements) {
    return Unexpected{
        limit_error(begin, fmt::format("at most {} elements", limits_.elements), "elements")};
  }
  if (past - begin > limits_.string_bytes) {
    const JsonScan scan =
        scan_json({buffer_.data() + begin, past - begin}, JsonManner::kStrict, limits_);
    if (scan.over_limit) {
      Error error = error_at(begin + scan.defect,
                             fmt::format("{}/{}{}", pointer_prefix_,
                                         next_index_ + element_starts_.size(), scan.pointer),
                             scan.message);
      error.code = ErrorCode::kFormat;
      return Unexpected{std::move(error)};
    }
  }
  return {};
}

// Finds the place of the mistake: brackets that do not match are noticed far after it.
std::optional<Error> JsonStream::element_defect(std::size_t begin) const {
  const JsonScan scan =
      scan_json({buffer_.data() + begin, end_ - begin}, JsonManner::kStrict, limits_);
  if (scan.status != JsonScan::Status::kBroken) return {};
  return error_at(
      begin + scan.defect,
      fmt::format("{}/{}{}", pointer_prefix_, next_index_ + element_starts_.size(), scan.pointer),
      scan.message);
}

Result<JsonStream::Item> JsonStream::frame_piece(std::size_t complete_end, bool closed) {
  piece_begin_ = element_starts_.front() - 1;
  piece_end_ = complete_end;
  saved_begin_ = buffer_[piece_begin_];
  saved_end_ = buffer_[piece_end_];
  buffer_[piece_begin_] = '[';
  buffer_[piece_end_] = ']';
  framed_ = true;
  next_index_ += element_starts_.size();
  array_closed_ = closed;
  begin_ = closed ? complete_end : complete_end + 1;  // keeps the ']' for the next call
  return Item::kElements;
}

Result<JsonStream::Item> JsonStream::next_elements() {
  const std::size_t most_open = salvage_
                                    ? std::min<std::size_t>(limits_.element_bytes, kMostOpenBytes)
                                    : static_cast<std::size_t>(limits_.element_bytes);
  element_starts_.clear();
  element_ends_.clear();
  first_index_ = next_index_;
  for (;;) {
    PERFMODEL_TRY(c, peek());
    if (*c == ']' && (next_index_ == 0 || array_closed_)) {
      ++begin_;
      phase_ = bare_ ? Phase::kDone : Phase::kObject;
      if (bare_) return finish();
      return next();
    }
    if (*c == kEndOfText) return broken_off("',' or ']'");

    // Collect complete elements of the text at hand.
    std::size_t at = begin_;
    const char* text = buffer_.data();
    std::size_t complete_end = 0;
    bool closed = false;
    std::optional<Error> trouble;
    while (at < end_) {
      while (at < end_ && is_blank(text[at])) ++at;
      if (at >= end_) break;
      const Found found = find_element_end(at);
      const std::size_t past = found.past;
      if (found.too_deep) {
        trouble = limit_error(static_cast<std::size_t>(found.too_deep - text),
                              fmt::format("at most {} brackets within brackets", limits_.nesting),
                              "nesting");
        break;
      }
      if (past == 0) {
        if (end_ - at > most_open) {
          trouble =
              limit_error(at, fmt::format("an element of at most {} bytes", limits_.element_bytes),
                          "element-bytes");
        }
        break;
      }
      std::size_t separator = past;
      while (separator < end_ && is_blank(text[separator])) ++separator;
      if (separator >= end_) break;
      if (auto good = check_element(at, past); !good) {
        trouble = good.error();
        break;
      }
      if (salvage_ && text[at] != '{') {
        trouble.emplace();  // told where it is left out
        break;
      }
      if (text[separator] != ',' && text[separator] != ']') {
        trouble = element_defect(at);
        if (!trouble) {
          trouble = error_at(
              separator,
              fmt::format("{}/{}", pointer_prefix_, next_index_ + element_starts_.size()),
              fmt::format("expected ',' or ']', found {}", shown_character(text[separator])));
        }
        break;
      }
      element_starts_.push_back(at);
      element_ends_.push_back(past);
      complete_end = separator;
      if (text[separator] == ']') {
        closed = true;
        break;
      }
      at = separator + 1;
    }
    if (trouble && !salvage_) return Unexpected{std::move(*trouble)};
    if (!element_starts_.empty()) return frame_piece(complete_end, closed);
    if (trouble) {
      if (next_index_ >= limits_.elements) return Unexpected{std::move(*trouble)};
      return start_lenient({});
    }
    PERFMODEL_TRY(more, refill());
    if (!*more) {
      if (salvage_) return start_lenient({});
      if (auto defect = element_defect(begin_)) return Unexpected{std::move(*defect)};
      return broken_off("the rest of an element");
    }
  }
}

Result<JsonStream::Item> JsonStream::broken_off(std::string_view expected) {
  if (!salvage_) {
    return Unexpected{error_at(end_, fmt::format("{}/{}", pointer_prefix_, next_index_),
                               fmt::format("expected {}, found the end of the file", expected))};
  }
  cut_off_ = true;
  phase_ = Phase::kDone;
  return Item::kEnd;
}

Result<JsonStream::Item> JsonStream::finish() {
  phase_ = Phase::kDone;
  PERFMODEL_TRY(rest, peek());
  if (*rest == kEndOfText) return Item::kEnd;
  Error error =
      error_at(begin_, "", fmt::format("expected the end of the file, found {}", shown(*rest)));
  if (!salvage_) return Unexpected{std::move(error)};
  begin_drop(begin_, error.message, false);
  do {
    begin_ = end_;
  } while (refill().value_or(false));
  end_drop();
  return Item::kEnd;
}

}  // namespace perfmodel
