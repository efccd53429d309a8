#include "json_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace perfmodel {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::size_t kPadding = 64;  // simdjson wants 32, the bracket scanner 64
constexpr std::size_t kMaxMemberBytes = std::size_t{1} << 20;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

struct BlockMasks {
  std::uint64_t quote = 0, backslash = 0, open = 0, close = 0;
};

// One bit per character of a 64-byte block. '{' and '[' (and '}' and ']') differ in bit 5 only.
BlockMasks classify(const char* block) {
  BlockMasks masks;
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
  const __m128i open = _mm_set1_epi8('{'), close = _mm_set1_epi8('}'), bit5 = _mm_set1_epi8(0x20);
  for (int i = 0; i < 4; ++i) {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * i));
    const __m128i folded = _mm_or_si128(text, bit5);
    const auto bits = [i](__m128i equal) {
      return static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(equal)))
             << (16 * i);
    };
    masks.quote |= bits(_mm_cmpeq_epi8(text, quote));
    masks.backslash |= bits(_mm_cmpeq_epi8(text, backslash));
    masks.open |= bits(_mm_cmpeq_epi8(folded, open));
    masks.close |= bits(_mm_cmpeq_epi8(folded, close));
  }
#else
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    const char c = block[i];
    if (c == '"') masks.quote |= bit;
    if (c == '\\') masks.backslash |= bit;
    if (c == '{' || c == '[') masks.open |= bit;
    if (c == '}' || c == ']') masks.close |= bit;
  }
#endif
  return masks;
}

// Characters that a backslash protects; `carry` says whether the first one is.
std::uint64_t escaped_characters(std::uint64_t backslash, bool& carry) {
  std::uint64_t escaped = carry ? 1 : 0;
  carry = false;
  for (std::uint64_t left = backslash; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    if ((escaped >> i) & 1) continue;
    if (i == 63) {
      carry = true;
    } else {
      escaped |= std::uint64_t{2} << i;
    }
  }
  return escaped;
}

// Bit i of the result: parity of the quotes up to and including i.
std::uint64_t prefix_parity(std::uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

}  // namespace

const char* find_container_end(const char* begin, const char* end) {
  std::int64_t depth = 0;
  bool escape_carry = false;
  std::uint64_t in_string = 0;  // all ones while a string crosses the block border
  for (const char* block = begin; block < end; block += 64) {
    const BlockMasks masks = classify(block);
    std::uint64_t quote = masks.quote;
    if (masks.backslash != 0 || escape_carry) {
      quote &= ~escaped_characters(masks.backslash, escape_carry);
    }
    const std::uint64_t string = prefix_parity(quote) ^ in_string;
    in_string = static_cast<std::uint64_t>(static_cast<std::int64_t>(string) >> 63);
    const std::uint64_t open = masks.open & ~string;
    std::uint64_t close = masks.close & ~string;
    if (depth <= std::popcount(close)) {
      for (; close != 0; close &= close - 1) {
        const int i = std::countr_zero(close);
        const std::uint64_t before = (std::uint64_t{1} << i) - 1;
        const auto opened = std::popcount(open & before);
        const auto closed = std::popcount(masks.close & ~string & (before | (before + 1)));
        if (depth + opened - closed == 0) {
          const char* past = block + i + 1;
          return past <= end ? past : nullptr;
        }
      }
      close = masks.close & ~string;
    }
    depth += std::popcount(open) - std::popcount(close);
  }
  return nullptr;
}

std::string_view json_kind(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \n\t\r");
  if (start == std::string_view::npos) return "nothing";
  switch (text[start]) {
    case '{':
      return "an object";
    case '[':
      return "an array";
    case '"':
      return "a string";
    case 't':
    case 'f':
      return "a boolean";
    case 'n':
      return "null";
    default:
      return "a number";
  }
}

Result<JsonStream> JsonStream::open(const std::filesystem::path& file, std::string_view array_key,
                                    const ReadOptions& options) {
  auto source = ByteSource::open(file, options);
  if (!source) return Unexpected{source.error()};
  return JsonStream(std::move(*source), file, array_key, options);
}

JsonStream JsonStream::over(std::string_view text, const std::filesystem::path& name,
                            std::string_view array_key, const ReadOptions& options) {
  return {ByteSource::over(text), name, array_key, options};
}

JsonStream::JsonStream(ByteSource source, const std::filesystem::path& file,
                       std::string_view array_key, const ReadOptions& options)
    : source_(std::move(source)), salvage_(options.salvage), file_(file), array_key_(array_key) {
  buffer_.resize(kPieceBytes + kPadding + 1);
  begin_ = end_ = 1;  // room for the frame before a piece at the very front
}

Error JsonStream::error_at(std::size_t position, std::string pointer, std::string message) const {
  position = std::min(position, end_);
  const char* text = buffer_.data();
  // The frame of a piece may hide a line break.
  const bool hidden =
      framed_ && saved_begin_ == '\n' && piece_begin_ > 0 && piece_begin_ < position;
  const auto newlines = std::count(text + 1, text + position, '\n') + (hidden ? 1 : 0);
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
               .line = static_cast<int>(consumed_lines_ + static_cast<std::uint64_t>(newlines) + 1),
               .column = static_cast<int>(offset - line_start + 1)};
}

Result<bool> JsonStream::refill() {
  if (begin_ > 1) {
    const char* text = buffer_.data();
    const auto newlines = std::count(text + 1, text + begin_, '\n');
    if (newlines > 0) {
      std::size_t last = begin_ - 1;
      while (text[last] != '\n') --last;
      last_line_offset_ = consumed_offset_ + last;  // buffer position 1 is consumed_offset_
    }
    consumed_lines_ += static_cast<std::uint64_t>(newlines);
    consumed_offset_ += begin_ - 1;
    std::memmove(buffer_.data() + 1, buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_ - 1;
    begin_ = 1;
  }
  if (end_ + kPadding + kPieceBytes / 4 > buffer_.size()) buffer_.resize(2 * buffer_.size());
  const std::size_t room = buffer_.size() - kPadding - end_;
  const auto count = source_.read(buffer_.data() + end_, room);
  if (!count) {
    Error error = error_at(end_, "", count.error().message);
    error.code = count.error().code;
    return Unexpected{std::move(error)};
  }
  end_ += *count;
  std::memset(buffer_.data() + end_, ' ', kPadding);
  return *count > 0;
}

Result<char> JsonStream::peek() {
  for (;;) {
    while (begin_ < end_ && is_blank(buffer_[begin_])) ++begin_;
    if (begin_ < end_) return buffer_[begin_];
    const auto more = refill();
    if (!more) return Unexpected{more.error()};
    if (!*more) return '\0';
  }
}

std::string_view JsonStream::elements() const {
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
    const std::string_view text = element_text(i);
    try {
      const auto whole = nlohmann::json::parse(text);
    } catch (const nlohmann::json::parse_error& error) {
      std::string_view what = error.what();
      if (const auto colon = what.find(": "); colon != std::string_view::npos) {
        what.remove_prefix(colon + 2);  // drops "[json.exception...] parse error at line ..."
      }
      return error_at(element_starts_[i] + (error.byte > 0 ? error.byte - 1 : 0),
                      fmt::format("{}/{}", pointer_prefix_, first_index_ + i),
                      fmt::format("expected valid JSON, found: {}", what));
    } catch (const std::exception&) {
      break;
    }
  }
  return error_at(piece_begin_, fmt::format("{}/{}", pointer_prefix_, first_index_),
                  fmt::format("expected valid JSON, found: {}", parser_message));
}

void JsonStream::restore_frame() {
  if (!framed_) return;
  buffer_[piece_begin_] = saved_begin_;
  buffer_[piece_end_] = saved_end_;
  framed_ = false;
}

Result<JsonStream::Item> JsonStream::next() {
  restore_frame();
  if (phase_ == Phase::kStart) {
    const auto first = peek();
    if (!first) return Unexpected{first.error()};
    if (end_ - begin_ >= 3 && std::memcmp(buffer_.data() + begin_, "\xEF\xBB\xBF", 3) == 0) {
      begin_ += 3;  // byte order mark
      return next();
    }
    if (*first == '\0') {
      return Unexpected{error_at(begin_, "",
                                 bytes_read() == 0 ? "expected JSON, found an empty file"
                                                   : "expected JSON, found only blanks")};
    }
    if (*first != '{' && *first != '[') {
      const bool printable = *first >= ' ' && *first < 0x7F;
      return Unexpected{error_at(
          begin_, "",
          printable ? fmt::format("expected a JSON object or array, found '{}'", *first)
                    : "expected a JSON object or array, found binary data (a Chakra trace?)")};
    }
    bare_ = *first == '[';
    ++begin_;
    phase_ = bare_ ? Phase::kArray : Phase::kObject;
    array_seen_ = bare_;
    pointer_prefix_ = bare_ ? "" : "/" + array_key_;
  }
  if (phase_ == Phase::kObject) {
    auto item = next_member();
    if (!item && salvage_ && array_seen_ && begin_ >= end_) {  // broken off behind the array
      cut_off_ = true;
      phase_ = Phase::kDone;
      return Item::kEnd;
    }
    return item;
  }
  if (phase_ == Phase::kArray) return next_elements();
  return Item::kEnd;
}

Result<std::string> JsonStream::read_string() {
  std::string text;
  ++begin_;  // the quote
  for (;;) {
    if (begin_ >= end_) {
      const auto more = refill();
      if (!more) return Unexpected{more.error()};
      if (!*more)
        return Unexpected{error_at(begin_, "", "expected '\"', found the end of the file")};
    }
    const char c = buffer_[begin_++];
    if (c == '"') return text;
    text += c;
    if (c == '\\') {
      if (begin_ >= end_) {
        const auto more = refill();
        if (!more) return Unexpected{more.error()};
        if (!*more) continue;  // told above
      }
      text += buffer_[begin_++];
    }
  }
}

Result<void> JsonStream::read_value(std::string& text) {
  text.clear();
  const auto first = peek();
  if (!first) return Unexpected{first.error()};
  const auto append = [&](char c) {
    if (text.size() <= kMaxMemberBytes) text += c;
  };
  int depth = 0;
  bool in_string = false, escaped = false;
  for (;;) {
    if (begin_ >= end_) {
      const auto more = refill();
      if (!more) return Unexpected{more.error()};
      if (!*more) {
        return Unexpected{
            error_at(begin_, "/" + member_key_, "expected a value, found the end of the file")};
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
  auto c = peek();
  if (!c) return Unexpected{c.error()};
  if (*c == '}') {
    ++begin_;
    return finish();
  }
  if (!first_member_) {
    if (*c != ',') {
      return Unexpected{error_at(begin_, "",
                                 *c ? fmt::format("expected ',' or '}}', found '{}'", *c)
                                    : "expected ',' or '}', found the end of the file")};
    }
    ++begin_;
    c = peek();
    if (!c) return Unexpected{c.error()};
  }
  first_member_ = false;
  if (*c != '"') {
    return Unexpected{error_at(begin_, "",
                               *c ? fmt::format("expected a key, found '{}'", *c)
                                  : "expected a key, found the end of the file")};
  }
  auto key = read_string();
  if (!key) return Unexpected{key.error()};
  member_key_ = std::move(*key);
  c = peek();
  if (!c) return Unexpected{c.error()};
  if (*c != ':') return Unexpected{error_at(begin_, "/" + member_key_, "expected ':'")};
  ++begin_;
  c = peek();
  if (!c) return Unexpected{c.error()};
  if (member_key_ == array_key_) {
    if (*c != '[') {
      Error error = error_at(begin_, "/" + array_key_,
                             fmt::format("expected an array, found {}",
                                         *c ? json_kind(std::string_view(&*c, 1)) : "nothing"));
      error.code = ErrorCode::kFormat;
      return Unexpected{std::move(error)};
    }
    ++begin_;
    array_seen_ = true;
    phase_ = Phase::kArray;
    return next_elements();
  }
  if (auto read = read_value(member_text_); !read) return Unexpected{read.error()};
  return Item::kMember;
}

Result<JsonStream::Item> JsonStream::next_elements() {
  const auto cut_off = [&](std::size_t position, std::string_view expected) -> Result<Item> {
    if (salvage_) {
      cut_off_ = true;
      phase_ = Phase::kDone;
      return Item::kEnd;
    }
    return Unexpected{error_at(position, fmt::format("{}/{}", pointer_prefix_, next_index_),
                               fmt::format("expected {}, found the end of the file", expected))};
  };
  element_starts_.clear();
  element_ends_.clear();
  first_index_ = next_index_;
  for (;;) {
    auto c = peek();
    if (!c) {
      if (salvage_) return cut_off(end_, "");
      return Unexpected{c.error()};
    }
    if (*c == ']' && (next_index_ == 0 || array_closed_)) {
      ++begin_;
      phase_ = bare_ ? Phase::kDone : Phase::kObject;
      if (bare_) return finish();
      return next();
    }
    if (*c == '\0') return cut_off(end_, "',' or ']'");

    // Collect complete elements of the text at hand.
    std::size_t at = begin_;
    const char* text = buffer_.data();
    std::size_t complete_end = 0;
    bool closed = false;
    while (at < end_) {
      while (at < end_ && is_blank(text[at])) ++at;
      if (at >= end_) break;
      std::size_t past = 0;
      if (text[at] == '{' || text[at] == '[') {
        const char* found = find_container_end(text + at, text + end_);
        if (!found) break;
        past = static_cast<std::size_t>(found - text);
      } else {
        // A scalar where an object should be: the caller will complain with its place.
        bool in_string = false;
        std::size_t i = at;
        for (; i < end_; ++i) {
          if (in_string && text[i] == '\\') {
            ++i;
            continue;
          }
          if (text[i] == '"') in_string = !in_string;
          if (!in_string && (text[i] == ',' || text[i] == ']' || text[i] == '}')) break;
        }
        if (i >= end_) break;
        past = i;
      }
      std::size_t separator = past;
      while (separator < end_ && is_blank(text[separator])) ++separator;
      if (separator >= end_) break;
      if (text[separator] != ',' && text[separator] != ']') {
        return Unexpected{error_at(
            separator, fmt::format("{}/{}", pointer_prefix_, next_index_ + element_starts_.size()),
            fmt::format("expected ',' or ']', found '{}'", text[separator]))};
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
    if (!element_starts_.empty()) {
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
    const auto more = refill();
    if (!more) {
      if (salvage_) return cut_off(end_, "");
      return Unexpected{more.error()};
    }
    if (!*more) return cut_off(end_, "the rest of an element");
  }
}

Result<JsonStream::Item> JsonStream::finish() {
  phase_ = Phase::kDone;
  const auto rest = peek();
  if (!rest) return Unexpected{rest.error()};
  if (*rest != '\0') {
    return Unexpected{
        error_at(begin_, "", fmt::format("expected the end of the file, found '{}'", *rest))};
  }
  return Item::kEnd;
}

}  // namespace perfmodel
