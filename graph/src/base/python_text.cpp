#include "python_text.hpp"

#include <simdjson.h>

#include <cctype>
#include <cstdint>

namespace perfmodel {
namespace {

bool is_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string_view json_of_word(std::string_view word) {
  if (word == "True") return "true";
  if (word == "False") return "false";
  return word == "None" ? "null" : word;
}

// From the opening quote on; returns where the text goes on.
std::size_t add_string(std::string_view literal, std::size_t at, std::string& json) {
  const char quote = literal[at++];
  json += '"';
  for (; at < literal.size() && literal[at] != quote; ++at) {
    if (literal[at] == '\\' && at + 1 < literal.size()) {
      const char escaped = literal[++at];
      if (escaped != '\'') json += '\\';
      json += escaped;
    } else {
      if (literal[at] == '"') json += '\\';
      json += literal[at];
    }
  }
  json += '"';
  return at + 1;
}

std::string name_of(simdjson::dom::element element) {
  std::string_view text;
  std::int64_t number = 0;
  simdjson::dom::element inner;
  if (element.get(text) == simdjson::SUCCESS) return std::string(text);
  if (element.get(number) == simdjson::SUCCESS) return std::to_string(number);
  if (element.is_object() && element["pg_name"].get(inner) == simdjson::SUCCESS) {
    return name_of(inner);
  }
  return element.is_array() && element.at(0).get(inner) == simdjson::SUCCESS ? name_of(inner) : "";
}

}  // namespace

std::string json_of_python(std::string_view literal) {
  std::string json;
  for (std::size_t at = 0; at < literal.size();) {
    const char c = literal[at];
    if (c == '\'' || c == '"') {
      at = add_string(literal, at, json);
      continue;
    }
    if (is_of_word(c)) {
      std::size_t end = at;
      while (end < literal.size() && is_of_word(literal[end])) ++end;
      json += json_of_word(literal.substr(at, end - at));
      at = end;
      continue;
    }
    const bool closes = c == ')' || c == ']' || c == '}';
    if (closes && json.ends_with(',')) json.pop_back();  // "(1,)"
    json += c == '(' ? '[' : c == ')' ? ']' : c;
    ++at;
  }
  return json;
}

std::string process_group_name(std::string_view text) {
  if (text.empty() || std::string_view("{[(").find(text.front()) == text.npos) {
    return std::string(text);
  }
  simdjson::dom::parser parser;
  simdjson::dom::element element;
  if (parser.parse(json_of_python(text)).get(element) != simdjson::SUCCESS) {
    return std::string(text);
  }
  const std::string name = name_of(element);
  return name.empty() ? std::string(text) : name;
}

}  // namespace perfmodel
