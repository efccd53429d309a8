#include "json_position.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace perfmodel {
namespace {

/// Steps through the text of a valid document. No recursion, whatever the depth.
class JsonText {
 public:
  explicit JsonText(std::string_view text) : text_(text) { skip_blanks(); }

  std::size_t offset() const { return at_; }
  bool at_end() const { return at_ >= text_.size(); }
  char next() const { return at_end() ? '\0' : text_[at_]; }

  void skip_character() {
    ++at_;
    skip_blanks();
  }

  /// Past a string; returns it with its quotes.
  std::string_view skip_string() {
    const std::size_t begin = at_++;
    while (!at_end() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, text_.size());
    const std::string_view token = text_.substr(begin, at_ - begin);
    skip_blanks();
    return token;
  }

  void skip_value() {
    std::size_t depth = 0;
    while (!at_end()) {
      const char c = next();
      const bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
      if (depth == 0 && (closes || c == ',')) return;
      if (c == '"') {
        skip_string();
      } else {
        skip_character();
      }
      if (opens) ++depth;
      if (closes) --depth;
      if (closes && depth == 0) return;
    }
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Goes from the start of an object or array to the member that `token` names; false: there is
/// none.
bool enter(JsonText& text, std::string_view token) {
  const char kind = text.next();
  if (kind != '{' && kind != '[') return false;
  text.skip_character();
  for (std::size_t i = 0; !text.at_end() && text.next() != '}' && text.next() != ']'; ++i) {
    std::string name = std::to_string(i);
    if (kind == '{') {
      name = json_token(nlohmann::json::parse(text.skip_string()).get<std::string>());
      text.skip_character();  // the colon
    }
    if (name == token) return true;
    text.skip_value();
    if (text.next() == ',') text.skip_character();
  }
  return false;
}

/// Keeps only the place, counted from 1, where the text is no JSON.
class FirstDefect final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::optional<std::size_t> position;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception&) override {
    position = at;
    return false;
  }
};

}  // namespace

std::size_t find_json_pointer(std::string_view document, std::string_view pointer) {
  JsonText text(document);
  std::size_t offset = text.offset();
  while (!pointer.empty()) {
    pointer.remove_prefix(1);  // the slash
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    if (!enter(text, pointer.substr(0, end))) return offset;
    offset = text.offset();
    pointer.remove_prefix(end);
  }
  return offset;
}

std::optional<std::size_t> find_json_defect(std::string_view text) {
  FirstDefect defect;
  nlohmann::json::sax_parse(text, &defect);
  if (!defect.position) return std::nullopt;
  return std::min(text.size(), *defect.position > 0 ? *defect.position - 1 : 0);
}

std::size_t find_json_key(std::string_view document, std::size_t number) {
  JsonText text(document);
  while (!text.at_end()) {
    if (text.next() != '"') {
      text.skip_character();
      continue;
    }
    const std::size_t begin = text.offset();
    text.skip_string();
    if (text.next() == ':' && --number == 0) return begin;
  }
  return 0;
}

std::string json_token(std::string_view key) {
  std::string token;
  for (const char c : key) {
    if (c == '~') {
      token += "~0";
    } else if (c == '/') {
      token += "~1";
    } else {
      token += c;
    }
  }
  return token;
}

void set_position(Error& error, std::size_t offset, std::string_view text) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_break = before.rfind('\n');
  error.line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
  error.column = static_cast<int>(offset - (line_break == before.npos ? 0 : line_break + 1)) + 1;
}

}  // namespace perfmodel
