#include "json_scan.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <optional>
#include <vector>

#include "base/digits.hpp"
#include "base/secrets.hpp"

namespace perfmodel {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

constexpr std::string_view kTheEnd = "the end of the file";

constexpr unsigned key_bit(std::string_view key) {
  return key == "id"                              ? 1u
         : key == "name"                          ? 2u
         : key == "ph"                            ? 4u
         : key == "ts"                            ? 8u
         : key == "traceEvents" || key == "nodes" ? 16u
                                                  : 0u;
}

/// Told by a scanner that looks ahead (JsonScout) what becomes of the objects that it meets. Places
/// are offsets in the file.
struct ObjectWatch {
  virtual ~ObjectWatch() = default;
  virtual void closed(std::uint64_t begin, unsigned keys) = 0;
  virtual void given_up(std::uint64_t begin) = 0;
};

class Scanner {
 public:
  /// A scanner that looks ahead: if brackets are too deep or an object is too long, it gives up the
  /// outermost one and goes on as if the text had begun after it.
  Scanner(const ReadLimits& limits, std::size_t most, ObjectWatch& watch)
      : lenient_(true), limits_(limits), watch_(&watch), most_(most) {}

  std::uint64_t position() const { return origin_ + at_; }
  bool is_open(std::uint64_t begin) const {
    return std::ranges::any_of(
        frames_, [&](const Frame& frame) { return frame.object && frame.begin == begin; });
  }
  void restart(std::uint64_t offset) {
    origin_ = offset;
    at_ = 0;
    frames_.clear();
    scan_.status = JsonScan::Status::kGood;
    expect_ = Expect::kValue;
    done_ = repaired_ = false;
  }
  /// Takes the text from `offset` on, which must not be after the position.
  void set_text(std::string_view text, std::uint64_t offset) {
    at_ = static_cast<std::size_t>(position() - offset);
    text_ = text;
    origin_ = offset;
  }
  /// One token further. False: the text ends within it, or nothing is open any more.
  bool look_on() {
    if (done_) return false;
    const std::size_t before = at_;
    step();
    if (scan_.status == JsonScan::Status::kOpen) {  // again, with more text
      scan_.status = JsonScan::Status::kGood;
      at_ = before;
      return false;
    }
    if (scan_.status == JsonScan::Status::kBroken) {
      while (!frames_.empty()) give_up_outermost();
      done_ = true;
    }
    while (!frames_.empty() && position() - frames_.front().begin > most_) give_up_outermost();
    done_ = done_ || frames_.empty();
    return !done_;
  }

  Scanner(std::string_view text, JsonManner manner, const ReadLimits& limits)
      : text_(text), lenient_(manner == JsonManner::kLenient), limits_(limits) {}

  JsonScan run() {
    while (scan_.status == JsonScan::Status::kGood && !done_) step();
    if (scan_.status == JsonScan::Status::kGood && repaired_) {
      scan_.status = JsonScan::Status::kRepaired;
    }
    scan_.past = at_;
    return std::move(scan_);
  }

 private:
  enum class Expect : std::uint8_t { kValue, kFirstValue, kFirstKey, kKey, kColon, kSeparator };

  struct Frame {
    bool object = false;
    std::size_t index = 0;      // index of the member or entry at hand
    std::string_view key = {};  // key of the member at hand, as written in the text
    std::size_t written = 0;    // members or entries in the copy
    std::uint64_t begin = 0;    // its bracket
    unsigned keys = 0;          // bits of `key_bit`
  };

  void give_up_outermost() {
    if (frames_.front().object) watch_->given_up(frames_.front().begin);
    frames_.pop_front();
  }

  void step() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    if (at_ == text_.size()) return stop(JsonScan::Status::kOpen, at_, expected_text(), kTheEnd);
    const char c = text_[at_];
    switch (expect_) {
      case Expect::kFirstValue:
        if (c == ']') return close();
        if (c == ',') return superfluous_comma(c);
        return value(c);
      case Expect::kValue:
        if (in_array() && (c == ',' || c == ']')) return superfluous_comma(c);
        return value(c);
      case Expect::kFirstKey:
        if (c == '}') return close();
        if (c == ',') return superfluous_comma(c);
        return key(c);
      case Expect::kKey:
        if (c == ',' || c == '}') return superfluous_comma(c);
        return key(c);
      case Expect::kColon:
        if (c != ':') return broken(c);
        ++at_;
        write(':');
        expect_ = Expect::kValue;
        return;
      case Expect::kSeparator: return separator(c);
    }
  }

  bool in_array() const { return !frames_.empty() && !frames_.back().object; }

  std::string expected_text() const {
    switch (expect_) {
      case Expect::kValue: return "a value";
      case Expect::kFirstValue: return "a value or ']'";
      case Expect::kFirstKey: return "a key or '}'";
      case Expect::kKey: return "a key";
      case Expect::kColon: return "':'";
      case Expect::kSeparator: return in_array() ? "',' or ']'" : "',' or '}'";
    }
    return {};
  }

  void broken(char found) {
    if (watch_) return void(scan_.status = JsonScan::Status::kBroken);
    stop(JsonScan::Status::kBroken, at_, expected_text(), shown_character(found));
  }

  // Only the first deviation is reported.
  void deviation(std::size_t at, std::string_view expected, std::string_view found) {
    if (watch_ || !scan_.message.empty()) return;
    scan_.defect = at;
    scan_.pointer = pointer();
    scan_.message = fmt::format("expected {}, found {}", expected, found);
  }

  void stop(JsonScan::Status status, std::size_t at, std::string_view expected,
            std::string_view found) {
    deviation(at, expected, found);
    scan_.status = status;
  }

  // Notes a deviation; true if the value goes on.
  bool repair(std::size_t at, std::string_view expected, std::string_view found) {
    if (!lenient_) {
      stop(JsonScan::Status::kBroken, at, expected, found);
      return false;
    }
    deviation(at, expected, found);
    repaired_ = true;
    return true;
  }

  std::string pointer() const {
    std::string text;
    for (const Frame& frame : frames_) {
      if (frame.object && frame.key.data() == nullptr) break;  // no key was read yet
      text += '/';
      if (frame.object) {
        for (char c : shown_text(frame.key))
          text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
      } else {
        text += std::to_string(frame.index);
      }
    }
    return text;
  }

  void write(char c) {
    if (lenient_ && !watch_) scan_.copy += c;
  }
  void write(std::string_view text) {
    if (lenient_ && !watch_) scan_.copy += text;
  }

  // In front of a member or entry: the comma that strict JSON wants.
  void write_comma() {
    if (frames_.empty()) return;
    if (frames_.back().written++ > 0) write(',');
  }

  void superfluous_comma(char c) {
    if (!repair(at_, expected_text(), shown_character(c))) return;
    if (c == ',') {
      ++at_;
    } else {
      close();
    }
  }

  void separator(char c) {
    if (c == ',') {
      ++at_;
      ++frames_.back().index;
      frames_.back().key = {};
      expect_ = in_array() ? Expect::kValue : Expect::kKey;
      return;
    }
    if (c == (in_array() ? ']' : '}')) return close();
    const bool starts_next = c == '"' || (in_array() && (c == '{' || c == '[' || is_digit(c)));
    if (!lenient_ || !starts_next) return broken(c);
    repair(at_, expected_text(), shown_character(c));
    ++frames_.back().index;
    expect_ = in_array() ? Expect::kValue : Expect::kKey;
  }

  void open(bool object) {
    if (frames_.size() >= limits_.nesting && watch_) {
      give_up_outermost();
    } else if (frames_.size() >= limits_.nesting) {
      scan_.over_limit = true;
      return stop(JsonScan::Status::kBroken, at_,
                  fmt::format("at most {} brackets within brackets", limits_.nesting),
                  "more (limit nesting; --limit nesting=N raises it)");
    }
    write_comma_of_entry();
    ++at_;
    write(object ? '{' : '[');
    frames_.push_back({.object = object, .begin = position() - 1});
    expect_ = object ? Expect::kFirstKey : Expect::kFirstValue;
  }

  void write_comma_of_entry() {
    if (in_array()) write_comma();
  }

  void close() {
    ++at_;
    write(frames_.back().object ? '}' : ']');
    if (watch_ && frames_.back().object) watch_->closed(frames_.back().begin, frames_.back().keys);
    frames_.pop_back();
    value_ended();
  }

  void value_ended() {
    done_ = frames_.empty();
    expect_ = Expect::kSeparator;
  }

  void key(char c) {
    if (c != '"') return broken(c);
    write_comma();
    const std::size_t begin = at_ + 1;
    if (!string()) return;
    Frame& frame = frames_.back();
    frame.key = text_.substr(begin, at_ - 1 - begin);
    frame.keys |= key_bit(frame.key);
    if (frames_.size() == 1) scan_.keys = frame.keys;
    expect_ = Expect::kColon;
  }

  void value(char c) {
    if (c == '{' || c == '[') return open(c == '{');
    write_comma_of_entry();
    if (c == '"') {
      if (string()) value_ended();
    } else if (c == '-' || is_digit(c)) {
      number();
    } else if (is_letter(c)) {
      word(at_);
    } else {
      broken(c);
    }
  }

  // "true", "NaN", ..., from `begin` on (a sign may come first).
  void word(std::size_t begin) {
    std::size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]))) ++end;
    const std::string_view word = text_.substr(begin, end - begin);
    if (end == text_.size())
      return stop(JsonScan::Status::kOpen, end, "the rest of a value", kTheEnd);
    if (word == "true" || word == "false" || word == "null") {
      write(word);
    } else {
      const std::string_view meant =
          word == "NaN" || word == "nan" || word == "-nan" || word == "-NaN" ? "\"nan\""
          : word == "Infinity" || word == "inf" || word == "Inf"             ? "\"inf\""
          : word == "-Infinity" || word == "-inf" || word == "-Inf"          ? "\"-inf\""
                                                                             : "";
      if (meant.empty()) return broken(text_[begin]);
      if (!repair(begin, "a number", word)) return;
      write(meant);
    }
    at_ = end;
    value_ended();
  }

  void number() {
    const std::size_t begin = at_;
    if (text_[at_] == '-') {
      ++at_;
      if (at_ < text_.size() && is_letter(text_[at_])) return word(begin);
    }
    const std::size_t digits = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    bool good = at_ > digits && (text_[digits] != '0' || at_ == digits + 1);
    bool whole = true;
    if (at_ < text_.size() && text_[at_] == '.') {
      whole = false;
      const std::size_t fraction = ++at_;
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
      good &= at_ > fraction;
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      whole = false;
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      const std::size_t exponent = at_;
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
      good &= at_ > exponent;
    }
    if (at_ == text_.size())
      return stop(JsonScan::Status::kOpen, at_, "the rest of a number", kTheEnd);
    const std::string_view token = text_.substr(begin, at_ - begin);
    if (!good) {
      return stop(JsonScan::Status::kBroken, begin, "a number",
                  shown_text(text_.substr(begin, at_ + 1 - begin)));
    }
    if (whole && !fits_64_bits(token)) {
      if (!repair(begin, "an integer of at most 64 bits", shown_text(token))) return;
      write(token);
      write("e0");
    } else if (!whole && !is_finite(token)) {
      if (!repair(begin, "a number that a double holds", shown_text(token))) return;
      write(token.front() == '-' ? "\"-inf\"" : "\"inf\"");
    } else {
      write(token);
    }
    value_ended();
  }

  static bool fits_64_bits(std::string_view token) {
    const char* const end = token.data() + token.size();
    std::int64_t narrow = 0;
    std::uint64_t wide = 0;
    return std::from_chars(token.data(), end, narrow).ec == std::errc() ||
           std::from_chars(token.data(), end, wide).ec == std::errc();
  }

  // Numbers too small for a double are 0.
  static bool is_finite(std::string_view token) {
    double value = 0;
    if (std::from_chars(token.data(), token.data() + token.size(), value).ec == std::errc())
      return true;
    const std::size_t e = token.find_first_of("eE");
    return e != std::string_view::npos && token.substr(e + 1).starts_with('-');
  }

  // From the quote at hand past the closing one.
  bool string() {
    const std::size_t begin = ++at_;
    write('"');
    for (;;) {
      if (at_ == text_.size()) {
        stop(JsonScan::Status::kOpen, at_, "'\"'", kTheEnd);
        return false;
      }
      if (at_ - begin > limits_.string_bytes) {
        scan_.over_limit = true;
        stop(JsonScan::Status::kBroken, begin - 1,
             fmt::format("a string of at most {} bytes", limits_.string_bytes),
             "a longer one (limit string-bytes; --limit string-bytes=N raises it)");
        return false;
      }
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') break;
      const std::size_t length = c == '\\'   ? escape_length()
                                 : c >= 0x80 ? utf8_length()
                                             : c >= 0x20;
      if (scan_.status != JsonScan::Status::kGood) return false;
      if (length > 0) {
        write(text_.substr(at_, length));
        at_ += length;
        continue;
      }
      const bool good =
          repair(at_,
                 c == '\\'   ? "a JSON escape"
                 : c >= 0x80 ? "UTF-8"
                             : "no control character in a string",
                 c == '\\' ? shown_text(text_.substr(at_, 2)) : shown_character(text_[at_]));
      if (!good) return false;
      write('?');
      ++at_;
    }
    ++at_;
    write('"');
    return true;
  }

  // Length of the escape at hand; 0: it is none.
  std::size_t escape_length() {
    const std::string_view rest = text_.substr(at_);
    if (rest.size() < 12 && rest.find('"', 2) == std::string_view::npos) return cut_string();
    if (std::string_view("\"\\/bfnrt").find(rest[1]) != std::string_view::npos) return 2;
    if (rest[1] != 'u') return 0;
    const auto unit = [](std::string_view text) -> std::optional<unsigned> {
      if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return {};
      if (!std::all_of(text.begin() + 2, text.begin() + 6, is_hex)) return {};
      unsigned value = 0;
      std::from_chars(text.data() + 2, text.data() + 6, value, 16);
      return value;
    };
    const auto first = unit(rest);
    if (!first) return 0;
    if (*first < 0xD800 || *first > 0xDFFF) return 6;
    const auto second = unit(rest.substr(6));
    const bool pair = *first < 0xDC00 && second && *second >= 0xDC00 && *second <= 0xDFFF;
    return pair ? 12 : 0;
  }

  // The text ends within an escape or a character, as far as one can see.
  std::size_t cut_string() {
    stop(JsonScan::Status::kOpen, text_.size(), "'\"'", kTheEnd);
    return 0;
  }

  // Length of the character at hand; 0: it is none.
  std::size_t utf8_length() {
    const auto c = static_cast<unsigned char>(text_[at_]);
    const std::size_t length = c >= 0xF0 && c < 0xF5   ? 4
                               : c >= 0xE0 && c < 0xF0 ? 3
                               : c >= 0xC2 && c < 0xE0 ? 2
                                                       : 0;
    if (length > 0 && at_ + length > text_.size()) return cut_string();
    if (length == 0) return 0;
    return simdjson::validate_utf8(text_.data() + at_, length) ? length : 0;
  }

  std::string_view text_;
  bool lenient_;
  const ReadLimits& limits_;
  JsonScan scan_;
  std::size_t at_ = 0;
  Expect expect_ = Expect::kValue;
  std::deque<Frame> frames_;
  bool repaired_ = false, done_ = false;
  ObjectWatch* watch_ = nullptr;  // set if it looks ahead; it keeps no copy and no message
  std::size_t most_ = 0;
  std::uint64_t origin_ = 0;  // offset of the text in the file
};

}  // namespace

JsonScan scan_json(std::string_view text, JsonManner manner, const ReadLimits& limits) {
  return Scanner(text, manner, limits).run();
}

struct JsonScout::State : ObjectWatch {
  State(const ReadLimits& l, std::size_t most, bool (*looks)(unsigned))
      : limits(l), looks_like_element(looks), scanner(limits, most, *this) {}

  void closed(std::uint64_t begin, unsigned keys) override {
    mark(begin, looks_like_element(keys) ? Verdict::kElement : Verdict::kOther);
  }
  void given_up(std::uint64_t begin) override { mark(begin, Verdict::kDead); }

  void mark(std::uint64_t begin, Verdict verdict) {
    const auto place = static_cast<std::size_t>(begin - first);
    if (place >= verdicts.size()) verdicts.resize(place + 1, Verdict::kUnknown);
    verdicts[place] = verdict;
  }
  Verdict known(std::uint64_t offset) const {
    const auto place = static_cast<std::size_t>(offset - first);
    return place < verdicts.size() ? verdicts[place] : Verdict::kUnknown;
  }
  // Drops the text before `offset`; later calls ask only about later places.
  void forget_before(std::uint64_t offset) {
    constexpr std::size_t kKept = std::size_t{1} << 20;
    const auto passed = static_cast<std::size_t>(
        std::min<std::uint64_t>(offset - first, static_cast<std::uint64_t>(verdicts.size())));
    if (passed < kKept) return;
    verdicts.erase(verdicts.begin(), verdicts.begin() + static_cast<std::ptrdiff_t>(passed));
    first += passed;
  }

  ReadLimits limits;
  bool (*looks_like_element)(unsigned);
  std::vector<Verdict> verdicts;  // for the object that begins at each byte from `first` on
  std::uint64_t first = 0;
  Scanner scanner;
};

JsonScout::JsonScout(const ReadLimits& limits, std::size_t most,
                     bool (*looks_like_element)(unsigned keys))
    : state_(std::make_unique<State>(limits, most, looks_like_element)) {}
JsonScout::~JsonScout() = default;
JsonScout::JsonScout(JsonScout&&) noexcept = default;
JsonScout& JsonScout::operator=(JsonScout&&) noexcept = default;

JsonScout::Verdict JsonScout::judge(std::string_view text, std::uint64_t offset) {
  State& state = *state_;
  if (offset >= state.scanner.position()) {  // after all that was looked at
    state.verdicts.clear();
    state.first = offset;
    state.scanner.restart(offset);
    state.scanner.set_text(text, offset);
    state.scanner.look_on();
  } else {
    state.forget_before(offset);
    state.scanner.set_text(text, offset);
  }
  while (state.known(offset) == Verdict::kUnknown && state.scanner.is_open(offset)) {
    if (!state.scanner.look_on() && state.scanner.is_open(offset)) return Verdict::kWantsText;
  }
  return state.known(offset);
}

std::string shown_character(char c) {
  const auto code = static_cast<unsigned char>(c);
  if (code > 0x20 && code < 0x7F) return fmt::format("'{}'", c);
  return fmt::format("byte 0x{:02X}", code);
}

}  // namespace perfmodel
