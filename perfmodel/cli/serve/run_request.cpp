#include "run_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "cli/build/build_commands.hpp"
#include "cli/commands.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/hosted_run.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

Unexpected wrong(const std::string& pointer, std::string message) {
  return Unexpected{
      Error{.code = ErrorCode::kFormat, .message = std::move(message), .json_pointer = pointer}};
}

// "/options/b~1c" of the key "b/c".
std::string pointer_to(std::string_view member, std::string_view key) {
  return (Json::json_pointer() / std::string(member) / std::string(key)).to_string();
}

// `request` as an object with known members alone.
Result<Json> read_request(std::string_view request) {
  Json json;
  try {
    json = Json::parse(request);
  } catch (const Json::parse_error& error) {
    return Unexpected{Error{
        .code = ErrorCode::kSyntax,
        .message = fmt::format("expected a request in JSON, found none: byte {}", error.byte)}};
  } catch (const Json::out_of_range&) {
    return Unexpected{Error{.code = ErrorCode::kSyntax,
                            .message = "expected a request in JSON, found a number that is too "
                                       "large"}};
  }
  if (!json.is_object()) return wrong("", "expected an object");
  for (const auto& [key, value] : json.items()) {
    if (key != "command" && key != "arguments" && key != "options") {
      return wrong("/" + key, "expected command, arguments or options");
    }
  }
  if (!json.contains("command") || !json["command"].is_string()) {
    return wrong("/command", "expected the name of a command");
  }
  if (!json.value("arguments", Json::array()).is_array()) {
    return wrong("/arguments", "expected a list");
  }
  if (!json.value("options", Json::object()).is_object()) {
    return wrong("/options", "expected an object");
  }
  return json;
}

// One value as a word of a command line.
Result<std::string> word_of(const Json& value, const std::string& pointer) {
  if (value.is_number()) return value.dump();
  if (!value.is_string()) {
    return wrong(pointer, fmt::format("expected text or a number, found {}",
                                      value.is_null() ? "null" : value.type_name()));
  }
  auto text = value.get<std::string>();
  if (text == "-") {
    return wrong(pointer, "expected a file, found -: standard input is that of who asks");
  }
  if (text.find('\0') != std::string::npos) return wrong(pointer, "expected text without NUL");
  return text;
}

Result<std::vector<std::string>> words_of_list(const Json& list, const std::string& pointer) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto word = word_of(list[i], fmt::format("{}/{}", pointer, i));
    if (!word) return Unexpected{word.error()};
    words.push_back(std::move(*word));
  }
  return words;
}

// A flag with its values as words.
Result<void> add_option_words(CommandParser command, const std::string& key, const Json& value,
                              std::vector<std::string>& words) {
  if (value.is_null()) return {};
  std::string name = key;
  std::ranges::replace(name, '_', '-');
  const std::string flag = "--" + name;
  const std::string pointer = pointer_to("options", key);
  if (value.is_boolean()) {
    if (value.get<bool>()) {
      words.push_back(flag);
    } else if (command.option("--no-" + name)) {
      words.push_back("--no-" + name);
    }
    return {};
  }
  auto values = words_of_list(value.is_array() ? value : Json::array({value}), pointer);
  if (!values) return Unexpected{values.error()};
  const Option option = command.option(flag);
  if (option && option.delimiter() != '\0' && !values->empty()) {
    *values = {fmt::format("{}", fmt::join(*values, std::string(1, option.delimiter())))};
  }
  // Joined to the name: a value may begin with a dash.
  for (const std::string& word : *values) words.push_back(flag + "=" + word);
  return {};
}

// The command that the first words name.
CommandParser named_command(CommandParser command, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const auto below = command.subcommands();
    const auto named = std::ranges::find(below, word, &CommandParser::name);
    if (named == below.end()) break;
    command = *named;
  }
  return command;
}

struct CommandWords {
  std::vector<std::string> words;
  bool document = false;  // else it prints text
};

Result<CommandWords> command_words(const Json& request) {
  CommandWords made;
  std::istringstream name(request["command"].get<std::string>());
  for (std::string word; name >> word;) made.words.push_back(word);
  constexpr std::string_view kOthers[] = {"serve", "train", "eval", "man", "completion"};
  if (made.words.empty() || std::ranges::find(kOthers, made.words.front()) != std::end(kOthers)) {
    return wrong("/command",
                 fmt::format("expected a command that answers within another program, found {}",
                             made.words.empty() ? "none" : made.words.front()));
  }
  auto arguments = words_of_list(request.value("arguments", Json::array()), "/arguments");
  if (!arguments) return Unexpected{arguments.error()};
  for (std::string& word : *arguments) {
    made.words.push_back(word.starts_with('-') ? "./" + word : std::move(word));
  }
  if (made.words.size() == 1) made.words.emplace_back();
  add_default_command(made.words);
  if (made.words.back().empty()) made.words.pop_back();

  const ProgramParser app;
  const std::vector<Command> commands = make_commands(app, made.words.front());
  CommandParser command = named_command(app, made.words);
  const Json options = request.value("options", Json::object());
  const Json help = options.value("help", Json(false));
  if (!help.is_boolean() && !help.is_null()) {
    return wrong("/options/help",
                 fmt::format("expected true or false, found {}", help.type_name()));
  }
  for (const auto& [key, value] : options.items()) {
    if (key == "json") continue;  // always
    if (auto added = add_option_words(command, key, value, made.words); !added) {
      return Unexpected{added.error()};
    }
  }
  made.document = command.option("--json") && help != Json(true);
  if (made.document) made.words.emplace_back("--json");
  return made;
}

// Where `flag` stands as a word of its own.
std::size_t find_flag(const std::string& message, const std::string& flag) {
  const std::size_t at = message.find(flag);
  if (at == std::string::npos || at + flag.size() == message.size()) return at;
  const char next = message[at + flag.size()];
  return next == ':' || next == '=' || next == ' ' || next == ',' ? at : std::string::npos;
}

// The option that the parser names first.
std::string pointer_of_usage(const Json& request, const std::string& message) {
  const Json options = request.value("options", Json::object());
  std::size_t first = std::string::npos;
  std::string pointer;
  for (const auto& [key, value] : options.items()) {
    std::string flag = "--" + key;
    std::ranges::replace(flag, '_', '-');
    const std::size_t at = find_flag(message, flag);
    if (at >= first) continue;
    first = at;
    pointer = pointer_to("options", key);
  }
  return pointer;
}

}  // namespace

RequestAnswer run_request(std::string_view request, std::size_t most_bytes) {
  const auto json = read_request(request);
  if (!json) return {.outcome = {kBadUsage, json.error()}, .text = {}, .messages = {}};
  const auto made = command_words(*json);
  if (!made) return {.outcome = {kBadUsage, made.error()}, .text = {}, .messages = {}};
  HostedRun host(most_bytes);
  RequestAnswer answer{.outcome = run_command_line(made->words, make_commands, suggest_preset),
                       .text = {},
                       .messages = std::move(host.complaints)};
  if (answer.outcome.status == kBadUsage) {
    answer.outcome.error.json_pointer = pointer_of_usage(*json, answer.outcome.error.message);
  }
  if (answer.outcome.status != kOk) return answer;
  answer.text = made->document ? std::move(host.printed) : to_text(Json(host.printed));
  return answer;
}

}  // namespace perfmodel::cli
