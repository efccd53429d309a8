#include "command_request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "fields/field.hpp"

namespace perfmodel::serve {
namespace {

Unexpected format_error(const std::string& pointer, std::string message) {
  return fail(ErrorCode::kFormat, std::move(message), {}, pointer);
}

// "/options/b~1c" of the key "b/c".
std::string pointer_to_option(std::string_view key) {
  return (Json::json_pointer() / "options" / std::string(key)).to_string();
}

// One value as a word of a command line.
Result<std::string> word_of(const Json& value, const std::string& pointer) {
  if (value.is_number()) return value.dump();
  if (!value.is_string()) {
    return format_error(pointer, fmt::format("expected text or a number, found {}",
                                             value.is_null() ? "null" : value.type_name()));
  }
  auto text = value.get<std::string>();
  if (text == "-") {
    return format_error(pointer, "expected a file, found -: standard input belongs to the client");
  }
  if (text.find('\0') != std::string::npos) {
    return format_error(pointer, "expected text without NUL");
  }
  return text;
}

Result<std::vector<std::string>> words_of_list(const Json& list, const std::string& pointer) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < list.size(); ++i) {
    PERFMODEL_TRY(word, word_of(list[i], fmt::format("{}/{}", pointer, i)));
    words.push_back(std::move(*word));
  }
  return words;
}

// The place of `flag` in a message as a word of its own.
std::size_t find_flag(const std::string& message, const std::string& flag) {
  const std::size_t at = message.find(flag);
  if (at == std::string::npos || at + flag.size() == message.size()) return at;
  const char next = message[at + flag.size()];
  return next == ':' || next == '=' || next == ' ' || next == ',' ? at : std::string::npos;
}

}  // namespace

Result<Json> read_command_request(std::string_view request) {
  Json json;
  try {
    json = Json::parse(request);
  } catch (const Json::parse_error& error) {
    return fail(ErrorCode::kSyntax,
                fmt::format("expected a request in JSON, found none: byte {}", error.byte));
  } catch (const Json::out_of_range&) {
    return fail(ErrorCode::kSyntax,
                "expected a request in JSON, found a number that is too "
                "large");
  }
  if (!json.is_object()) return format_error("", "expected an object");
  for (const auto& [key, value] : json.items()) {
    if (key != "command" && key != "arguments" && key != "options") {
      return format_error("/" + key, "expected command, arguments or options");
    }
  }
  if (!json.contains("command") || !json["command"].is_string()) {
    return format_error("/command", "expected the name of a command");
  }
  if (!json.value("arguments", Json::array()).is_array()) {
    return format_error("/arguments", "expected a list");
  }
  if (!json.value("options", Json::object()).is_object()) {
    return format_error("/options", "expected an object");
  }
  return json;
}

Result<std::vector<std::string>> command_name_words(const Json& request) {
  constexpr std::string_view kOthers[] = {"serve", "train", "eval", "man", "completion"};
  std::vector<std::string> words;
  std::istringstream name(request["command"].get<std::string>());
  for (std::string word; name >> word;) words.push_back(word);
  if (words.empty() || std::ranges::find(kOthers, words.front()) != std::end(kOthers)) {
    return format_error(
        "/command", fmt::format("expected a command that answers within another program, found {}",
                                words.empty() ? "none" : words.front()));
  }
  return words;
}

Result<std::vector<std::string>> argument_words(const Json& request) {
  PERFMODEL_TRY(words, words_of_list(request.value("arguments", Json::array()), "/arguments"));
  for (std::string& word : *words) {
    if (word.starts_with('-')) word = "./" + word;
  }
  return words;
}

Result<std::vector<std::string>> option_words(const std::string& key, const Json& value,
                                              const OptionForm& form) {
  using Words = std::vector<std::string>;
  if (value.is_null()) return Words{};
  const std::string flag = flag_of(key);
  if (value.is_boolean()) {
    if (value.get<bool>()) return Words{flag};
    return form.has_no_form ? Words{"--no-" + flag.substr(2)} : Words{};
  }
  PERFMODEL_TRY(words, words_of_list(value.is_array() ? value : Json::array({value}),
                                     pointer_to_option(key)));
  if (form.delimiter != '\0' && !words->empty()) {
    *words = {fmt::format("{}", fmt::join(*words, std::string(1, form.delimiter)))};
  }
  // Joined to the name: a value may begin with a dash.
  for (std::string& word : *words) word = flag + "=" + word;
  return words;
}

std::string pointer_of_usage(const Json& request, const std::string& message,
                             std::string_view other_named) {
  const Json options = request.value("options", Json::object());
  std::size_t first = std::string::npos;
  std::string pointer;
  for (const auto& [key, value] : options.items()) {
    const std::size_t at = find_flag(message, flag_of(key));
    if (at >= first) continue;
    first = at;
    pointer = pointer_to_option(key);
  }
  const bool names_other = pointer.empty() && !other_named.empty() && message.starts_with("--");
  return names_other ? pointer_to_option(other_named) : pointer;
}

}  // namespace perfmodel::serve
