#include "json_tree.hpp"

#include <cstring>

namespace perfmodel {
namespace {

constexpr std::uint32_t kMostOpen = simdjson::DEFAULT_MAX_DEPTH - 1;
constexpr int kMostDigits = 18;  // fit into 64 bits, whatever they are

// `next`: where the next bracket, comma or colon is, after which the string has ended.
void set_string(JsonEntry& entry, const char* quote, const char* next) {
  do {
    --next;
  } while (*next != '"');
  entry = {simdjson::dom::element_type::STRING, static_cast<std::uint32_t>(next - quote - 1), {}};
  entry.text = quote + 1;
}

bool ends_scalar(char c) {
  return c == ',' || c == ']' || c == '}' || c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool is_literal(const char* begin, std::string_view word) {
  return std::memcmp(begin, word.data(), word.size()) == 0 && ends_scalar(begin[word.size()]);
}

// Reads an integer of few digits; false: it is something else.
bool read_short_integer(const char* begin, std::int64_t& out) {
  const bool negative = *begin == '-';
  const char* const digits = begin + (negative ? 1 : 0);
  const char* at = digits;
  std::uint64_t number = 0;
  for (; *at >= '0' && *at <= '9'; ++at) number = 10 * number + static_cast<unsigned>(*at - '0');
  const auto count = at - digits;
  if (count == 0 || count > kMostDigits || (*digits == '0' && count > 1)) return false;
  if (!ends_scalar(*at)) return false;
  out = negative ? -static_cast<std::int64_t>(number) : static_cast<std::int64_t>(number);
  return true;
}

}  // namespace

simdjson::error_code JsonTree::parse(std::string_view text) {
  if (text.size() > index_.capacity()) {
    if (auto error = index_.allocate(text.size())) return error;
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  simdjson::internal::dom_parser_implementation& stage = *index_.implementation;
  if (auto error = stage.stage1(bytes, text.size(), simdjson::stage1_mode::regular)) return error;
  const std::uint32_t* const begin = stage.structural_indexes.get();
  const std::uint32_t* const end = begin + stage.n_structural_indexes;
  const std::size_t most = std::size_t{stage.n_structural_indexes} + 1;
  if (entries_.size() < most) entries_.resize(most);
  unescaped_.clear();
  text_has_escapes_ = text.find('\\') != std::string_view::npos;
  error_ = simdjson::SUCCESS;
  // A text that ends with its bracket is never read beyond its end.
  if (text[*begin] == '[' && text[end[-1]] == ']' && build(text.data(), begin, end) == end) {
    return simdjson::SUCCESS;
  }
  if (error_ == simdjson::MEMALLOC) return error_;
  const simdjson::error_code error = rare_.parse(text.data(), text.size(), false).error();
  return error ? error : simdjson::TAPE_ERROR;
}

// Returns the place after the array at `at`, or null if it is none. `at` goes from one bracket,
// comma, colon or first character of a string, number or word to the next. The first entry holds
// the array; while a container is open, its `size` is the place of the one around it.
const std::uint32_t* JsonTree::build(const char* text, const std::uint32_t* at,
                                     const std::uint32_t* end) {
  JsonEntry* const first = entries_.data();
  JsonEntry* out = first;
  *out++ = {JsonValue::Type::ARRAY, 0, {0}};
  std::uint32_t around = 0, depth = 0;
  std::int64_t count = 0;  // values of the innermost open container
  const bool has_escapes = text_has_escapes_;
  bool in_object = false;
  for (;;) {
    if (in_object) {
      if (text[*at] != '"' || text[at[1]] != ':') return nullptr;
      set_string(*out, text + *at, text + at[1]);
      if (has_escapes && !unescape(*out)) return nullptr;
      ++out;
      at += 2;
    }
    const char* const begin = text + *at++;
    if (*begin == '"') {
      set_string(*out, begin, text + *at);
      if (has_escapes && !unescape(*out)) return nullptr;
      ++out;
    } else if (*begin == '[' || *begin == '{') {
      out->type = static_cast<JsonValue::Type>(*begin);
      if (text[*at] == (*begin == '[' ? ']' : '}')) {
        ++at;
        out->integer = 0;
        out++->size = 1;
        if (around == 0) return at;
      } else {
        if (++depth > kMostOpen) return nullptr;
        first[around].integer = count;
        count = 0;
        out->size = around;
        around = static_cast<std::uint32_t>(out++ - first);
        in_object = *begin == '{';
        continue;
      }
    } else if (!set_scalar(*out++, begin, text + *at)) {
      return nullptr;
    }
    for (;;) {  // after a value
      if (at == end) return nullptr;
      ++count;
      const char after = text[*at++];
      if (after == ',') break;
      if (after != (in_object ? '}' : ']')) return nullptr;
      JsonEntry& container = first[around];
      container.integer = count;
      around = container.size;
      container.size = static_cast<std::uint32_t>(out - &container);
      if (around == 0) return at;
      count = first[around].integer;
      in_object = first[around].type == JsonValue::Type::OBJECT;
      --depth;
    }
  }
}

bool JsonTree::unescape(JsonEntry& string) {
  if (!std::memchr(string.text, '\\', string.size)) return true;
  return set_by_simdjson(string, string.text - 1, string.text + string.size + 1);
}

bool JsonTree::set_scalar(JsonEntry& entry, const char* begin, const char* next) {
  entry.type = JsonValue::Type::INT64;
  if (read_short_integer(begin, entry.integer)) return true;
  if (is_literal(begin, "true") || is_literal(begin, "false")) {
    entry.type = JsonValue::Type::BOOL;
    entry.integer = *begin == 't';
    return true;
  }
  if (is_literal(begin, "null")) {
    entry.type = JsonValue::Type::NULL_VALUE;
    return true;
  }
  return set_by_simdjson(entry, begin, next);
}

bool JsonTree::set_by_simdjson(JsonEntry& entry, const char* begin, const char* next) {
  simdjson::dom::element value;
  error_ = rare_.parse(begin, std::string_view(begin, next).size(), false).get(value);
  if (error_) return false;
  entry.type = value.type();
  switch (value.type()) {
    case JsonValue::Type::STRING:
      entry.text = unescaped_.emplace_back(std::string_view(value)).data();
      entry.size = static_cast<std::uint32_t>(unescaped_.back().size());
      return true;
    case JsonValue::Type::DOUBLE: entry.real = value; return true;
    case JsonValue::Type::INT64: entry.integer = value; return true;
    case JsonValue::Type::UINT64:
      entry.integer = static_cast<std::int64_t>(std::uint64_t(value));
      return true;
    case JsonValue::Type::BOOL: entry.integer = bool(value); return true;
    default: return value.is_null();
  }
}

}  // namespace perfmodel
